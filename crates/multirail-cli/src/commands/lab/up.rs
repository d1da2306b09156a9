//! `multirail lab up`: creates a lab.

use super::list;
use super::optional::{Optional, for_rail};
use crate::hints::error_with_hint;
use crate::printer::Printer;
use anyhow::bail;
use clap::Args;
use multirail_lab::{
    Cluster, Clusters, Delay, Lab, LabHost, LabRail, LinkSetting, Loss, Ports, Queue, Rate, Topology, Wan,
};
use std::path::PathBuf;

/// Create a lab and print its hosts, rails and addresses
#[derive(Args)]
#[command(after_help = "\
Examples:
  multirail lab up --hosts a,b --rails 100mbit,25mbit
  multirail lab up --hosts a,b,c --rails 1gbit,-       (a dash means no limit)
  multirail lab up --hosts a,b --rails 100mbit,100mbit --delay 10ms,30ms --loss 0.1% --jitter 1ms --queue 100p
  multirail lab up topology.toml --name wan
  multirail lab up --hosts 4 --ports 4 --rate 100mbit
  multirail lab up --clusters a=4,b=4,c=4 --link a-b=80mbit --link 'a>c=32mbit' --link-default 10mbit --delay 10ms

--delay, --jitter, --loss and --queue take one value for all rails, or a list with one value for each; `-` is none.
A delay is one way: the round trip takes twice as long. A rail that is created with a delay, a jitter or a loss, also
one of zero, can get others while the lab is up.

--clusters creates hosts a0, a1, ... of cluster a, and so on. Host i of cluster k (both from 0) has the address
10.(80+k).(i/250).(i%250+2). A switch without a rate limit joins the hosts of a cluster, and a link of its own each
pair of clusters. --delay, --jitter, --loss and --queue take one value for all links. Other values for one link follow
its rate: --link a-b=80mbit,delay=50ms,queue=256k.

--ports gives every host ports eth0, eth1, ..., and creates a switch for each port number: port k of every host leads
to switch k. --hosts 4 is short for h1,h2,h3,h4. Host i (from 1) has the address 10.90.0.i at its first port, and with
--subnets also 10.(90+k).0.i at port k.

A topology file:
  [[host]]
  name = \"a\"
  [host.sysctl]
  \"net.ipv4.tcp_rmem\" = \"4096 131072 4194304\"

  [[host]]
  name = \"b\"

  [[rail]]
  rate = \"100mbit\"
  rates = { b = \"10mbit\" }   # rates of single hosts' ports
  delay = \"10ms\"
  jitter = \"1ms\"
  loss = \"0.1%\"
  queue = \"100p\"             # or bytes: \"64k\"
  hosts = [\"a\", \"b\"]         # default: all
  mtu = 1500
  ipv6 = true")]
pub struct UpArgs {
    /// A TOML file of hosts and rails
    #[arg(conflicts_with_all = ["hosts", "rails", "clusters"], required_unless_present_any = ["hosts", "clusters"])]
    topology: Option<PathBuf>,
    /// The names of hosts; with --ports also their number
    #[arg(long, value_delimiter = ',', requires = "networks")]
    hosts: Vec<String>,
    /// The rates of rails, each joining all hosts: 100mbit, 2.5gbit, or `-` for no limit
    #[arg(long, value_delimiter = ',', requires = "hosts", group = "networks", allow_hyphen_values = true)]
    rails: Vec<Optional<Rate>>,
    /// The number of ports of every host, each to a switch of its own
    #[arg(long, requires = "hosts", group = "networks", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Option<u16>,
    /// The rate of every port in each direction [default: no limit]
    #[arg(long, requires = "ports")]
    rate: Option<Rate>,
    /// The rate of each port of a host in each direction, the same for all hosts
    #[arg(long, value_delimiter = ',', requires = "ports", conflicts_with = "rate")]
    port_rates: Vec<Rate>,
    /// Join the switches in a row, by links without a rate limit
    #[arg(long, requires = "ports")]
    trunk: bool,
    /// Give every port an address, in a network of its own for each switch
    #[arg(long, requires = "ports")]
    subnets: bool,
    /// The names of clusters, each with its number of hosts: a=4,b=12
    #[arg(
        long,
        value_name = "NAME=HOSTS",
        value_delimiter = ',',
        value_parser = parse_cluster,
        conflicts_with_all = ["hosts", "rails"]
    )]
    clusters: Vec<(String, usize)>,
    /// A link between two clusters: a-b=80mbit for both directions, a>b=8mbit for one; can be
    /// repeated
    #[arg(long, value_name = "A-B=RATE", requires = "clusters")]
    link: Vec<LinkSetting>,
    /// The rate of links without a --link
    #[arg(long, value_name = "RATE", requires = "clusters")]
    link_default: Option<Rate>,
    /// The rate limit of each host's traffic with other clusters, in each direction
    #[arg(long, value_name = "RATE", requires = "clusters")]
    access: Option<Rate>,
    /// The time that packets travel one way: 10ms, 500us
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    delay: Vec<Optional<Delay>>,
    /// The largest deviation from the delay, in either direction; packets stay in order
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    jitter: Vec<Optional<Delay>>,
    /// The share of packets that are lost: 0.1%
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    loss: Vec<Optional<Loss>>,
    /// The queue of a rail with a rate: 100p (packets), 64k (bytes)
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    queue: Vec<Optional<Queue>>,
    /// A sysctl of all hosts, such as net.ipv4.tcp_congestion_control=bbr; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_sysctl)]
    sysctl: Vec<(String, String)>,
    /// The lab's name
    #[arg(long, default_value = super::DEFAULT_NAME)]
    name: String,
}

/// The most hosts of a lab with ports. It is checked before the names are generated.
const HOSTS_MAX: usize = 254;

fn parse_cluster(text: &str) -> Result<(String, usize), String> {
    let parts = text.split_once('=').and_then(|(name, hosts)| Some((name.to_owned(), hosts.parse().ok()?)));
    parts.ok_or_else(|| "write a=4".to_owned())
}

fn parse_sysctl(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| "write key=value".to_owned())?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub fn run(args: UpArgs, printer: &Printer) -> anyhow::Result<()> {
    let mut topology = match &args.topology {
        Some(path) => Topology::from_file(path)?,
        None if !args.clusters.is_empty() => clusters(&args)?,
        None if args.ports.is_some() => ports(&args)?,
        None => rails(&args)?,
    };
    let routers: Vec<String> = topology.clusters.iter().map(Cluster::router).collect();
    for host in topology.hosts.iter_mut().filter(|host| !routers.contains(&host.name)) {
        host.sysctl.extend(args.sysctl.iter().cloned());
    }
    let lab = Lab::up(&args.name, &topology)?.keep()?;
    list::print(&lab.summary()?, printer)
}

fn ports(args: &UpArgs) -> anyhow::Result<Topology> {
    let count = args.ports.map_or(0, usize::from);
    let rates: Vec<Option<Rate>> = match args.port_rates.len() {
        0 => vec![args.rate; count],
        given if given == count => args.port_rates.iter().copied().map(Some).collect(),
        given => {
            let message = format!("--port-rates has {given} values for {count} ports");
            return Err(error_with_hint(message, "give one value for each port"));
        }
    };
    let hosts = match &args.hosts[..] {
        [count] if count.parse::<usize>().is_ok_and(|count| count > HOSTS_MAX) => {
            bail!("{count} hosts are more than {HOSTS_MAX}")
        }
        [one] => one
            .parse()
            .map_or_else(|_| vec![one.clone()], |count| (1..=count).map(|i: usize| format!("h{i}")).collect()),
        names => names.to_vec(),
    };
    let mut topology = Ports::new().with_trunk(args.trunk).with_subnets(args.subnets).topology(&hosts, &rates)?;
    let wan = for_all_links(args)?;
    topology.rails.iter_mut().for_each(|rail| rail.set_wan(wan));
    topology.check()?;
    Ok(topology)
}

fn clusters(args: &UpArgs) -> anyhow::Result<Topology> {
    let wan = for_all_links(args)?;
    let clusters = Clusters::new(&args.clusters).link_default(args.link_default).wan(wan).access(args.access);
    Ok(args.link.iter().cloned().fold(clusters, Clusters::link).topology()?)
}

fn for_all_links(args: &UpArgs) -> anyhow::Result<Wan> {
    let mut wan = Wan::default();
    wan.delay = for_all("delay", &args.delay)?;
    wan.jitter = for_all("jitter", &args.jitter)?;
    wan.loss = for_all("loss", &args.loss)?;
    wan.queue = for_all("queue", &args.queue)?;
    Ok(wan)
}

fn for_all<T: Copy>(option: &str, values: &[Optional<T>]) -> anyhow::Result<Option<T>> {
    match values {
        [] => Ok(None),
        [one] => Ok(one.0),
        _ => Err(error_with_hint(
            format!("--{option} has {} values", values.len()),
            "give one value for all links; --link sets others for one link of clusters",
        )),
    }
}

fn rails(args: &UpArgs) -> anyhow::Result<Topology> {
    let rails = args.rails.len();
    for (option, given) in [
        ("delay", args.delay.len()),
        ("jitter", args.jitter.len()),
        ("loss", args.loss.len()),
        ("queue", args.queue.len()),
    ] {
        if given > 1 && given != rails {
            let message = format!("--{option} has {given} values for {rails} rails");
            return Err(error_with_hint(message, "give one value for all rails, or one for each"));
        }
    }
    let rail = |(index, rate): (usize, &Optional<Rate>)| {
        let mut rail = LabRail::new(rate.0);
        rail.delay = for_rail(&args.delay, index);
        rail.jitter = for_rail(&args.jitter, index);
        rail.loss = for_rail(&args.loss, index);
        rail.queue = for_rail(&args.queue, index);
        rail
    };
    Ok(Topology::new(args.hosts.iter().map(LabHost::new).collect(), args.rails.iter().enumerate().map(rail).collect())?)
}
