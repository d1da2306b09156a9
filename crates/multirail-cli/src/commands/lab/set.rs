//! `multirail lab set`: changes of rails, links and ports while a lab is up.

use super::list;
use super::optional::Optional;
use super::target::SetTarget;
use crate::hints::error_with_hint;
use crate::printer::Printer;
use anyhow::Context;
use clap::Args;
use multirail_lab::{Delay, Lab, LabRail, LinkSetting, LinkState, Loss, Queue, Rate};

/// Change a rail, a host's port, or links between clusters, while the lab is up
#[derive(Args)]
#[command(after_help = "\
Examples:
  multirail lab set 1 --rate 10mbit
  multirail lab set 1 --delay 30ms --loss 1%    (if the rail was created with a delay, also 0ms)
  multirail lab set rail1 --cut    (packets are lost silently; the carrier stays)
  multirail lab set 1 --up
  multirail lab set h2:eth3 --rate 20mbit
  multirail lab set h2:eth3 --down    (as if its cable were pulled)
  multirail lab set --link a-b=8mbit --link 'a>c=32mbit' --link b-c=10mbit,delay=50ms")]
pub struct SetArgs {
    /// A rail, 1 or rail1, or a port of a host, h2:eth3
    #[arg(required_unless_present = "link")]
    target: Option<SetTarget>,
    /// A link between two clusters: a-b=8mbit for both directions, a>b=8mbit for one; can be
    /// repeated
    #[arg(long, value_name = "A-B=RATE", conflicts_with_all = ["target", "rate", "delay", "jitter", "loss", "queue", "state"])]
    link: Vec<LinkSetting>,
    /// The new rate of all ports of the rail, or `-` for no limit
    #[arg(
        long,
        required_unless_present_any = ["delay", "jitter", "loss", "queue", "down", "up", "cut", "link"],
        allow_hyphen_values = true
    )]
    rate: Option<Optional<Rate>>,
    /// The new delay, or `-` for none
    #[arg(long, allow_hyphen_values = true)]
    delay: Option<Optional<Delay>>,
    /// The new jitter, or `-` for none
    #[arg(long, allow_hyphen_values = true)]
    jitter: Option<Optional<Delay>>,
    /// The new loss, or `-` for none
    #[arg(long, allow_hyphen_values = true)]
    loss: Option<Optional<Loss>>,
    /// The new queue, or `-` for the default, which depends on rate and delay
    #[arg(long, allow_hyphen_values = true)]
    queue: Option<Optional<Queue>>,
    /// Take the hosts' ports down: they lose carrier and routes. A port of `lab up --ports` loses
    /// only the carrier
    #[arg(long, group = "state")]
    down: bool,
    /// Drop every packet silently; the carrier stays
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
            multirail_lab::raise_priority();
            lab.set_links(&args.link)?;
            let named = |from: &str, to: &str| args.link.iter().any(|link| link.is_between(from, to));
            list::print_links(&lab, printer, named)
        }
        Some(SetTarget::Rail(rail)) => set_rail(&lab, *rail, &args, printer),
        Some(SetTarget::Port { host, port }) => set_port(&lab, host, port, &args, printer),
    }
}

fn set_port(lab: &Lab, host: &str, port: &str, args: &SetArgs, printer: &Printer) -> anyhow::Result<()> {
    let number = lab.port_number(port)?;
    if args.delay.is_some() || args.jitter.is_some() || args.loss.is_some() || args.queue.is_some() {
        return Err(error_with_hint(
            "a port has no delay, jitter, loss and queue of its own",
            "change its rate with --rate, or its state with --down, --cut or --up",
        ));
    }
    match args.rate {
        Some(Optional(Some(rate))) => lab.set_port_rate(host, number, rate)?,
        Some(Optional(None)) => {
            return Err(error_with_hint("a port cannot lose its rate limit", "set a rate that is high enough"));
        }
        None => {}
    }
    if let Some(link) = args.link_state() {
        lab.set_port_link(host, number, link)?;
    }
    list::print_ports(lab, printer, |status| status.host == host && status.number == number)
}

fn set_rail(lab: &Lab, rail: usize, args: &SetArgs, printer: &Printer) -> anyhow::Result<()> {
    if let Some(Optional(rate)) = args.rate {
        lab.set_rate(rail, rate)?;
    }
    if args.delay.is_some() || args.jitter.is_some() || args.loss.is_some() || args.queue.is_some() {
        let mut wan =
            lab.summary()?.topology.and_then(|topology| topology.rails.get(rail).map(LabRail::wan)).unwrap_or_default();
        wan.delay = args.delay.map_or(wan.delay, |delay| delay.0);
        wan.jitter = args.jitter.map_or(wan.jitter, |jitter| jitter.0);
        wan.loss = args.loss.map_or(wan.loss, |loss| loss.0);
        wan.queue = args.queue.map_or(wan.queue, |queue| queue.0);
        lab.set_wan(rail, wan)?;
    }
    if let Some(link) = args.link_state() {
        lab.set_link(rail, link)?;
    }
    let summary = lab.summary()?;
    let topology = summary.topology.as_ref().context("the lab has been taken down")?;
    list::print_rail(lab, &summary, topology, rail, printer)
}
