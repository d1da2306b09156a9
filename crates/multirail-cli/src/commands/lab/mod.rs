//! `multirail lab`: test networks from the command line.

use crate::printer::Printer;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use multirail_lab::{Delay, Host, Lab, LinkState, Loss, Queue, Rail, Rate, Summary, Topology, Wan, WanCounters};
use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

/// Make test networks on this machine: hosts that are network namespaces, joined by rails of a given rate, delay and loss
#[derive(Args)]
#[command(after_help = "\
Example:
  multirail lab up --hosts a,b --rails 100mbit,25mbit
  multirail lab exec a -- ip address
  multirail lab set 1 --cut
  multirail lab down

Needs root, and `ip` and `tc` (package iproute2).")]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    Up(UpArgs),
    Exec(ExecArgs),
    Set(SetArgs),
    List(ListArgs),
    Down(DownArgs),
}

/// The lab that is meant where no name is given.
const DEFAULT_NAME: &str = "default";

/// Make a lab and print its hosts, rails and addresses
#[derive(Args)]
#[command(after_help = "\
Examples:
  multirail lab up --hosts a,b --rails 100mbit,25mbit
  multirail lab up --hosts a,b,c --rails 1gbit,-       (a dash: a rail without a rate)
  multirail lab up --hosts a,b --rails 100mbit,100mbit --delay 10ms,30ms --loss 0.1% --jitter 1ms --queue 100p
  multirail lab up topology.toml --name wan

--delay, --jitter, --loss and --queue take one value for all rails, or one a rail with commas between; `-` is none.
A delay is one way: the round trip takes twice as long. A rail with a delay, a jitter or a loss (also of zero) can
get others while the lab is up.

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
struct UpArgs {
    /// A TOML file of hosts and rails
    #[arg(conflicts_with_all = ["hosts", "rails"], required_unless_present = "hosts")]
    topology: Option<PathBuf>,
    /// Names of hosts
    #[arg(long, value_delimiter = ',', requires = "rails")]
    hosts: Vec<String>,
    /// Rates of rails, each joining all hosts: 100mbit, 2.5gbit, or `-` for none
    #[arg(long, value_delimiter = ',', requires = "hosts", allow_hyphen_values = true)]
    rails: Vec<Given<Rate>>,
    /// How long packets travel one way: 10ms, 500us
    #[arg(long, value_delimiter = ',', requires = "rails", allow_hyphen_values = true)]
    delay: Vec<Given<Delay>>,
    /// How far the delay of a packet is off at most, more or less; packets stay in order
    #[arg(long, value_delimiter = ',', requires = "rails", allow_hyphen_values = true)]
    jitter: Vec<Given<Delay>>,
    /// The share of packets that is lost: 0.1%
    #[arg(long, value_delimiter = ',', requires = "rails", allow_hyphen_values = true)]
    loss: Vec<Given<Loss>>,
    /// What waits before a rail with a rate, and no more: 100p (packets), 64k (bytes)
    #[arg(long, value_delimiter = ',', requires = "rails", allow_hyphen_values = true)]
    queue: Vec<Given<Queue>>,
    /// A sysctl of all hosts, such as net.ipv4.tcp_congestion_control=bbr; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_sysctl)]
    sysctl: Vec<(String, String)>,
    /// The lab's name
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
}

/// Run a command on a host of a lab; its exit code is passed on
#[derive(Args)]
#[command(after_help = "Example:\n  multirail lab exec b -- iperf3 -s -1 -B 10.77.0.2")]
struct ExecArgs {
    /// The host
    host: String,
    /// The command and its arguments
    #[arg(required = true, last = true)]
    command: Vec<String>,
    /// The lab's name
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
}

/// Change a rail while the lab is up
#[derive(Args)]
#[command(after_help = "\
Examples:
  multirail lab set 1 --rate 10mbit
  multirail lab set 1 --delay 30ms --loss 1%    (of a rail made with a delay, which may have been 0ms)
  multirail lab set rail1 --cut    (packets are lost silently, the carrier stays)
  multirail lab set 1 --up")]
struct SetArgs {
    /// The rail: 1 or rail1
    #[arg(value_parser = parse_rail)]
    rail: usize,
    /// A new rate for all its ports, or `-` for none
    #[arg(
        long,
        required_unless_present_any = ["delay", "jitter", "loss", "queue", "down", "up", "cut"],
        allow_hyphen_values = true
    )]
    rate: Option<Given<Rate>>,
    /// A new delay, or `-` for none
    #[arg(long, allow_hyphen_values = true)]
    delay: Option<Given<Delay>>,
    /// A new jitter, or `-` for none
    #[arg(long, allow_hyphen_values = true)]
    jitter: Option<Given<Delay>>,
    /// A new loss, or `-` for none
    #[arg(long, allow_hyphen_values = true)]
    loss: Option<Given<Loss>>,
    /// A new queue, or `-` for what the rate and the delay ask for
    #[arg(long, allow_hyphen_values = true)]
    queue: Option<Given<Queue>>,
    /// Take the hosts' ports down: carrier and routes are lost
    #[arg(long, group = "link")]
    down: bool,
    /// Lose every packet silently: the carrier stays
    #[arg(long, group = "link")]
    cut: bool,
    /// End --down or --cut
    #[arg(long, group = "link")]
    up: bool,
    /// The lab's name
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
}

/// List labs, their hosts, rails and addresses
#[derive(Args)]
#[command(after_help = "Example:\n  multirail lab list --json")]
struct ListArgs {}

/// Take a lab down, also one that is half-made
#[derive(Args)]
#[command(after_help = "Example:\n  multirail lab down --all")]
struct DownArgs {
    /// The lab's name
    #[arg(long, default_value = DEFAULT_NAME, conflicts_with = "all")]
    name: String,
    /// Take down all labs
    #[arg(long)]
    all: bool,
}

/// A value, or none where a dash was given.
#[derive(Clone, Copy)]
struct Given<T>(Option<T>);

macro_rules! given {
    ($($type:ty)*) => {$(
        impl FromStr for Given<$type> {
            type Err = multirail_lab::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <$type>::parse_optional(text).map(Self)
            }
        }
    )*};
}

given!(Rate Delay Loss Queue);

/// The value for a rail, of one for all or one for each.
fn for_rail<T: Copy>(given: &[Given<T>], rail: usize) -> Option<T> {
    given.get(if given.len() == 1 { 0 } else { rail }).and_then(|given| given.0)
}

fn parse_sysctl(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| "write key=value".to_owned())?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn parse_rail(text: &str) -> Result<usize, String> {
    let index = text.strip_prefix("rail").unwrap_or(text);
    index.parse().map_err(|_| "write 1 or rail1".to_owned())
}

pub fn run(args: LabArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    match args.command {
        LabCommand::Up(args) => up(args, printer)?,
        LabCommand::Exec(args) => return exec(args),
        LabCommand::Set(args) => set(args, printer)?,
        LabCommand::List(_) => list(printer)?,
        LabCommand::Down(args) => down(args, printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(args: UpArgs, printer: &Printer) -> anyhow::Result<()> {
    let mut topology = match &args.topology {
        Some(path) => Topology::from_file(path)?,
        None => given_topology(&args)?,
    };
    for host in &mut topology.hosts {
        host.sysctl.extend(args.sysctl.iter().cloned());
    }
    let lab = Lab::up(&args.name, &topology)?.keep()?;
    print(&lab.summary()?, printer)
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
    })
}

fn exec(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let (program, rest) = args.command.split_first().context("no command was given")?;
    let error = Lab::open(&args.name)?.command(&args.host, program)?.args(rest).exec();
    Err(error).with_context(|| format!("cannot run {program} on host {}", args.host))
}

fn set(args: SetArgs, printer: &Printer) -> anyhow::Result<()> {
    let rail = args.rail;
    let lab = Lab::open(&args.name)?;
    if let Some(Given(rate)) = args.rate {
        lab.set_rate(rail, rate)?;
    }
    if args.delay.is_some() || args.jitter.is_some() || args.loss.is_some() || args.queue.is_some() {
        let before = lab.summary()?.topology.and_then(|topology| topology.rails.get(rail).map(Rail::wan));
        let before = before.unwrap_or_default();
        let wan = Wan {
            delay: args.delay.map_or(before.delay, |given| given.0),
            jitter: args.jitter.map_or(before.jitter, |given| given.0),
            loss: args.loss.map_or(before.loss, |given| given.0),
            queue: args.queue.map_or(before.queue, |given| given.0),
        };
        lab.set_wan(rail, wan)?;
    }
    match (args.down, args.cut, args.up) {
        (true, ..) => lab.set_down(rail)?,
        (_, true, _) => lab.set_cut(rail)?,
        (.., true) => lab.set_up(rail)?,
        _ => {}
    }
    let summary = lab.summary()?;
    let topology = summary.topology.as_ref().context("the lab has just gone")?;
    printer.row(&rail_row(&summary, topology, rail, &lab.wan_counters()?), rail_text);
    Ok(())
}

fn list(printer: &Printer) -> anyhow::Result<()> {
    let labs = Lab::list()?;
    if labs.is_empty() {
        printer.note("no lab is up");
    }
    labs.iter().try_for_each(|lab| print(lab, printer))
}

fn down(args: DownArgs, printer: &Printer) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct DownRow {
        lab: String,
        namespaces: usize,
        processes: usize,
    }
    let names = if args.all { Lab::list()?.into_iter().map(|lab| lab.name).collect() } else { vec![args.name] };
    let mut failures = Vec::new();
    for lab in names {
        match Lab::take_down(&lab) {
            Ok(removed) => {
                let row = DownRow { lab, namespaces: removed.namespaces, processes: removed.processes };
                printer.row(&row, |row| match row.namespaces {
                    0 => format!("lab {}: nothing was there", row.lab),
                    count => format!("lab {}: {count} namespaces removed", row.lab),
                });
                if row.processes > 0 {
                    printer.note(format!("{} processes were still in it; they go on without a network", row.processes));
                }
            }
            Err(error) => failures.push(format!("{lab}: {error}")),
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("; ")) }
}

/// One host and its addresses, in the order of the rails.
#[derive(Serialize)]
struct HostRow<'a> {
    kind: &'static str,
    lab: &'a str,
    host: &'a str,
    namespace: String,
    ports: Vec<PortRow>,
}

#[derive(Serialize)]
struct PortRow {
    rail: usize,
    port: String,
    ipv4: String,
    ipv6: Option<String>,
}

#[derive(Serialize)]
struct RailRow<'a> {
    kind: &'static str,
    lab: &'a str,
    rail: usize,
    hosts: Vec<&'a str>,
    rate_mbit_s: Option<f64>,
    /// Where single hosts have their own.
    rates_mbit_s: std::collections::BTreeMap<&'a str, f64>,
    delay_ms: Option<f64>,
    jitter_ms: Option<f64>,
    loss_percent: Option<f64>,
    queue: Option<Queue>,
    mtu_bytes: u32,
    link: LinkState,
    /// Of each direction of a WAN that this machine's kernel did not make itself.
    counters: Vec<&'a WanCounters>,
}

fn print(summary: &Summary, printer: &Printer) -> anyhow::Result<()> {
    let Some(topology) = &summary.topology else {
        #[derive(Serialize)]
        struct LeftoverRow<'a> {
            kind: &'static str,
            lab: &'a str,
        }
        printer.row(&LeftoverRow { kind: "leftover", lab: &summary.name }, |row| {
            format!("lab {0}: half-made; `multirail lab down --name {0}` removes it", row.lab)
        });
        return Ok(());
    };
    printer.text(format!("lab {}", summary.name));
    let lab = Lab::open(&summary.name)?;
    for host in &topology.hosts {
        printer.row(&host_row(&lab, summary, topology, host)?, host_text);
    }
    let counters = lab.wan_counters()?;
    for rail in 0..topology.rails.len() {
        printer.row(&rail_row(summary, topology, rail, &counters), rail_text);
    }
    Ok(())
}

fn host_row<'a>(
    lab: &Lab,
    summary: &'a Summary,
    topology: &'a Topology,
    host: &'a Host,
) -> anyhow::Result<HostRow<'a>> {
    let mut ports = Vec::new();
    for (rail, wanted) in topology.rails.iter().enumerate() {
        if joins(wanted, host) {
            let ipv4 = lab.address(&host.name, rail)?.to_string();
            let ipv6 = lab.address_v6(&host.name, rail)?.map(|address| address.to_string());
            ports.push(PortRow { rail, port: lab.port(rail)?, ipv4, ipv6 });
        }
    }
    let namespace = lab.namespace(&host.name)?;
    Ok(HostRow { kind: "host", lab: &summary.name, host: &host.name, namespace, ports })
}

fn host_text(row: &HostRow<'_>) -> String {
    let port = |port: &PortRow| {
        let ipv6 = port.ipv6.as_ref().map(|address| format!(" {address}")).unwrap_or_default();
        format!("\n    {}  {}{ipv6}", port.port, port.ipv4)
    };
    format!("  host {} ({}){}", row.host, row.namespace, row.ports.iter().map(port).collect::<String>())
}

fn rail_row<'a>(summary: &'a Summary, topology: &'a Topology, rail: usize, counters: &'a [WanCounters]) -> RailRow<'a> {
    let wanted = &topology.rails[rail];
    RailRow {
        kind: "rail",
        lab: &summary.name,
        rail,
        hosts: topology.hosts.iter().filter(|host| joins(wanted, host)).map(|host| host.name.as_str()).collect(),
        rate_mbit_s: wanted.rate.map(Rate::mbit_s),
        rates_mbit_s: wanted.rates.iter().map(|(host, rate)| (host.as_str(), rate.mbit_s())).collect(),
        delay_ms: wanted.delay.map(Delay::ms),
        jitter_ms: wanted.jitter.map(Delay::ms),
        loss_percent: wanted.loss.map(Loss::percent),
        queue: wanted.queue,
        mtu_bytes: wanted.mtu,
        link: summary.links[rail],
        counters: counters.iter().filter(|counters| counters.rail == rail).collect(),
    }
}

fn rail_text(row: &RailRow<'_>) -> String {
    let rate = row.rate_mbit_s.map_or("unshaped".to_owned(), |rate| format!("{rate} Mbit/s"));
    let own = |(host, rate): (&&str, &f64)| format!(", {host} {rate} Mbit/s");
    let own: String = row.rates_mbit_s.iter().map(own).collect();
    let wan: String = [
        row.delay_ms.map(|delay| format!(", delay {delay} ms")),
        row.jitter_ms.map(|jitter| format!(", jitter {jitter} ms")),
        row.loss_percent.map(|loss| format!(", loss {loss} %")),
        row.queue.map(|queue| format!(", queue {queue}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let link = match row.link {
        LinkState::Up => "",
        LinkState::Down => ", down",
        LinkState::Cut => ", cut",
    };
    format!("  rail {}: {}, {rate}{own}{wan}, mtu {}{link}", row.rail, row.hosts.join(" - "), row.mtu_bytes)
}

fn joins(rail: &Rail, host: &Host) -> bool {
    rail.hosts.is_empty() || rail.hosts.contains(&host.name)
}
