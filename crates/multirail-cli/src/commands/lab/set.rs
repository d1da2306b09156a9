//! Changing rails, links and ports while a lab is up.

use super::given::Given;
use super::list;
use super::target::Target;
use crate::printer::Printer;
use anyhow::{Context, bail};
use clap::Args;
use multirail_lab::{Delay, Lab, LinkSetting, LinkState, Loss, Queue, Rail, Rate, Wan};

/// Change a rail, a host's port, or links between clusters, while the lab is up
#[derive(Args)]
#[command(after_help = "\
Examples:
  multirail lab set 1 --rate 10mbit
  multirail lab set 1 --delay 30ms --loss 1%    (of a rail made with a delay, which may have been 0ms)
  multirail lab set rail1 --cut    (packets are lost silently, the carrier stays)
  multirail lab set 1 --up
  multirail lab set h2:eth3 --rate 20mbit
  multirail lab set h2:eth3 --down    (as if its cable were pulled)
  multirail lab set --link a-b=8mbit --link 'a>c=32mbit' --link b-c=10mbit,delay=50ms")]
pub struct SetArgs {
    /// The rail, 1 or rail1, or the host's port, h2:eth3
    #[arg(required_unless_present = "link")]
    target: Option<Target>,
    /// A link between two clusters: a-b=8mbit both ways, a>b=8mbit one way; may be given several times
    #[arg(long, value_name = "A-B=RATE", conflicts_with_all = ["target", "rate", "delay", "jitter", "loss", "queue", "state"])]
    link: Vec<LinkSetting>,
    /// A new rate for all its ports, or `-` for none
    #[arg(
        long,
        required_unless_present_any = ["delay", "jitter", "loss", "queue", "down", "up", "cut", "link"],
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
    /// Take the hosts' ports down: carrier and routes are lost; of a port of `lab up --ports`, the carrier alone
    #[arg(long, group = "state")]
    down: bool,
    /// Lose every packet silently: the carrier stays
    #[arg(long, group = "state")]
    cut: bool,
    /// End --down or --cut
    #[arg(long, group = "state")]
    up: bool,
    /// The lab's name
    #[arg(long, default_value = super::DEFAULT_NAME)]
    name: String,
}

impl SetArgs {
    fn link_state(&self) -> Option<LinkState> {
        match (self.down, self.cut, self.up) {
            (true, ..) => Some(LinkState::Down),
            (_, true, _) => Some(LinkState::Cut),
            (.., true) => Some(LinkState::Up),
            _ => None,
        }
    }
}

pub fn run(args: SetArgs, printer: &Printer) -> anyhow::Result<()> {
    let lab = Lab::open(&args.name)?;
    match &args.target {
        None => {
            multirail_lab::be_on_time();
            lab.set_links(&args.link)?;
            let named = |from: &str, to: &str| args.link.iter().any(|link| link.is_of(from, to));
            list::print_links(&lab, printer, named)
        }
        Some(Target::Rail(rail)) => set_rail(&lab, *rail, &args, printer),
        Some(Target::Port { host, port }) => set_port(&lab, host, port, &args, printer),
    }
}

fn set_port(lab: &Lab, host: &str, port: &str, args: &SetArgs, printer: &Printer) -> anyhow::Result<()> {
    let number = lab.port_number(port)?;
    if args.delay.is_some() || args.jitter.is_some() || args.loss.is_some() || args.queue.is_some() {
        bail!(
            "a port has no delay, jitter, loss and queue of its own\nhint: change its rate, or take it --down, --cut, --up"
        );
    }
    match args.rate {
        Some(Given(Some(rate))) => lab.set_port_rate(host, number, rate)?,
        Some(Given(None)) => bail!("a port with a rate cannot be without\nhint: give a rate that is high enough"),
        None => {}
    }
    if let Some(link) = args.link_state() {
        lab.set_port_link(host, number, link)?;
    }
    list::print_ports(lab, printer, |status| status.host == host && status.number == number)
}

fn set_rail(lab: &Lab, rail: usize, args: &SetArgs, printer: &Printer) -> anyhow::Result<()> {
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
    if let Some(link) = args.link_state() {
        lab.set_link(rail, link)?;
    }
    let summary = lab.summary()?;
    let topology = summary.topology.as_ref().context("the lab has just gone")?;
    list::print_rail(lab, &summary, topology, rail, printer)
}
