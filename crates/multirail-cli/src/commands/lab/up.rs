//! Making labs.

use super::given::{Given, for_rail};
use super::list;
use crate::printer::Printer;
use anyhow::bail;
use clap::Args;
use multirail_lab::{Cluster, Clusters, Delay, Host, Lab, LinkSetting, Loss, Ports, Queue, Rail, Rate, Topology, Wan};
use std::path::PathBuf;

/// Make a lab and print its hosts, rails and addresses
#[derive(Args)]
#[command(after_help = "\
Examples:
  multirail lab up --hosts a,b --rails 100mbit,25mbit
  multirail lab up --hosts a,b,c --rails 1gbit,-       (a dash: a rail without a rate)
  multirail lab up --hosts a,b --rails 100mbit,100mbit --delay 10ms,30ms --loss 0.1% --jitter 1ms --queue 100p
  multirail lab up topology.toml --name wan
  multirail lab up --hosts 4 --ports 4 --rate 100mbit
  multirail lab up --clusters a=4,b=4,c=4 --link a-b=80mbit --link 'a>c=32mbit' --link-default 10mbit --delay 10ms

--delay, --jitter, --loss and --queue take one value for all rails, or one a rail with commas between; `-` is none.
A delay is one way: the round trip takes twice as long. A rail with a delay, a jitter or a loss (also of zero) can
get others while the lab is up.

--clusters makes hosts a0, a1, ... of cluster a, and so on. Host i of cluster k (both from 0) has the address
10.(80+k).(i/250).(i%250+2). Hosts of a cluster are joined by a switch as fast as the machine; each two clusters by a
link of their own. --delay, --jitter, --loss and --queue are one value for all links, or stand behind a link's rate:
--link a-b=80mbit,delay=50ms,queue=256k.

--ports gives every host ports eth0, eth1, ..., and makes a switch for each port number: port k of every host leads to
switch k. --hosts 4 is h1,h2,h3,h4. Host i (from 1) has the address 10.90.0.i at its first port; with --subnets also
10.(90+k).0.i at port k.

A topology file:
  [[host]]
  name = \"a\"
  [host.sysctl]
  \"net.ipv4.tcp_rmem\" = \"4096 131072 4194304\"

  [[host]]
  name = \"b\"

  [[rail]]
  rate = \"100mbit\"
  rates = { b = \"10mbit\" }   # other rates of single hosts' ports
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
    /// Names of hosts; with --ports also their number
    #[arg(long, value_delimiter = ',', requires = "networks")]
    hosts: Vec<String>,
    /// Rates of rails, each joining all hosts: 100mbit, 2.5gbit, or `-` for none
    #[arg(long, value_delimiter = ',', requires = "hosts", group = "networks", allow_hyphen_values = true)]
    rails: Vec<Given<Rate>>,
    /// How many ports every host has, each to a switch of its own
    #[arg(long, requires = "hosts", group = "networks", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Option<u16>,
    /// The rate of every port, each way; without it they are as fast as the machine
    #[arg(long, requires = "ports")]
    rate: Option<Rate>,
    /// The rate of each of a host's ports, each way, the same for all hosts
    #[arg(long, value_delimiter = ',', requires = "ports", conflicts_with = "rate")]
    port_rates: Vec<Rate>,
    /// Join the switches of ports, each to the next, as fast as the machine
    #[arg(long, requires = "ports")]
    trunk: bool,
    /// Give every port an address, in a network of its own for each switch
    #[arg(long, requires = "ports")]
    subnets: bool,
    /// Names of clusters, each with its number of hosts: a=4,b=12
    #[arg(
        long,
        value_name = "NAME=HOSTS",
        value_delimiter = ',',
        value_parser = parse_cluster,
        conflicts_with_all = ["hosts", "rails"]
    )]
    clusters: Vec<(String, usize)>,
    /// A link between two clusters: a-b=80mbit both ways, a>b=8mbit one way; may be given several times
    #[arg(long, value_name = "A-B=RATE", requires = "clusters")]
    link: Vec<LinkSetting>,
    /// The rate of links that --link does not name
    #[arg(long, value_name = "RATE", requires = "clusters")]
    link_default: Option<Rate>,
    /// How fast each host's traffic with other clusters is at most, each way
    #[arg(long, value_name = "RATE", requires = "clusters")]
    access: Option<Rate>,
    /// How long packets travel one way: 10ms, 500us
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    delay: Vec<Given<Delay>>,
    /// How far the delay of a packet is off at most, more or less; packets stay in order
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    jitter: Vec<Given<Delay>>,
    /// The share of packets that is lost: 0.1%
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    loss: Vec<Given<Loss>>,
    /// What waits before a rail with a rate, and no more: 100p (packets), 64k (bytes)
    #[arg(long, value_delimiter = ',', conflicts_with = "topology", allow_hyphen_values = true)]
    queue: Vec<Given<Queue>>,
    /// A sysctl of all hosts, such as net.ipv4.tcp_congestion_control=bbr; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_sysctl)]
    sysctl: Vec<(String, String)>,
    /// The lab's name
    #[arg(long, default_value = super::DEFAULT_NAME)]
    name: String,
}

/// No lab has more, and nobody should wait for so many names.
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
        None if !args.clusters.is_empty() => given_clusters(&args)?,
        None if args.ports.is_some() => given_ports(&args)?,
        None => given_topology(&args)?,
    };
    let routers: Vec<String> = topology.clusters.iter().map(Cluster::router).collect();
    for host in topology.hosts.iter_mut().filter(|host| !routers.contains(&host.name)) {
        host.sysctl.extend(args.sysctl.iter().cloned());
    }
    let lab = Lab::up(&args.name, &topology)?.keep()?;
    list::print(&lab.summary()?, printer)
}

fn given_ports(args: &UpArgs) -> anyhow::Result<Topology> {
    let ports = args.ports.map_or(0, usize::from);
    let rates: Vec<Option<Rate>> = match args.port_rates.len() {
        0 => vec![args.rate; ports],
        given if given == ports => args.port_rates.iter().copied().map(Some).collect(),
        given => bail!("--port-rates has {given} values for {ports} ports\nhint: give one for each port"),
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
    let mut topology = Ports { trunk: args.trunk, subnets: args.subnets }.topology(&hosts, &rates)?;
    let wan = for_all_links(args)?;
    topology.rails.iter_mut().for_each(|rail| rail.set_wan(wan));
    topology.check()?;
    Ok(topology)
}

fn given_clusters(args: &UpArgs) -> anyhow::Result<Topology> {
    let wan = for_all_links(args)?;
    let clusters = Clusters::new(&args.clusters).link_default(args.link_default).wan(wan).access(args.access);
    Ok(args.link.iter().cloned().fold(clusters, Clusters::link).topology()?)
}

fn for_all_links(args: &UpArgs) -> anyhow::Result<Wan> {
    Ok(Wan {
        delay: for_all("delay", &args.delay)?,
        jitter: for_all("jitter", &args.jitter)?,
        loss: for_all("loss", &args.loss)?,
        queue: for_all("queue", &args.queue)?,
    })
}

fn for_all<T: Copy>(option: &str, given: &[Given<T>]) -> anyhow::Result<Option<T>> {
    match given {
        [] => Ok(None),
        [one] => Ok(one.0),
        _ => bail!("--{option} has {} values\nhint: give one for all; clusters have others by --link", given.len()),
    }
}

fn given_topology(args: &UpArgs) -> anyhow::Result<Topology> {
    let rails = args.rails.len();
    for (option, given) in [
        ("delay", args.delay.len()),
        ("jitter", args.jitter.len()),
        ("loss", args.loss.len()),
        ("queue", args.queue.len()),
    ] {
        if given > 1 && given != rails {
            bail!("--{option} has {given} values for {rails} rails\nhint: give one for all, or one for each");
        }
    }
    let host = |name: &String| Host { name: name.clone(), ..Host::default() };
    let rail = |(index, rate): (usize, &Given<Rate>)| Rail {
        rate: rate.0,
        delay: for_rail(&args.delay, index),
        jitter: for_rail(&args.jitter, index),
        loss: for_rail(&args.loss, index),
        queue: for_rail(&args.queue, index),
        ..Rail::default()
    };
    Ok(Topology {
        hosts: args.hosts.iter().map(host).collect(),
        rails: args.rails.iter().enumerate().map(rail).collect(),
        ..Topology::default()
    })
}
