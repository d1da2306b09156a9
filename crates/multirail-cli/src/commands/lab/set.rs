//! Changing rails and links while a lab is up.

use super::given::Given;
use super::list;
use crate::printer::Printer;
use anyhow::Context;
use clap::Args;
use multirail_lab::{Delay, Lab, LinkSetting, Loss, Queue, Rail, Rate, Wan};

/// Change a rail, or links between clusters, while the lab is up
#[derive(Args)]
#[command(after_help = "\
Examples:
  multirail lab set 1 --rate 10mbit
  multirail lab set 1 --delay 30ms --loss 1%    (of a rail made with a delay, which may have been 0ms)
  multirail lab set rail1 --cut    (packets are lost silently, the carrier stays)
  multirail lab set 1 --up
  multirail lab set --link a-b=8mbit --link 'a>c=32mbit' --link b-c=10mbit,delay=50ms")]
pub struct SetArgs {
    /// The rail: 1 or rail1
    #[arg(value_parser = parse_rail, required_unless_present = "link")]
    rail: Option<usize>,
    /// A link between two clusters: a-b=8mbit both ways, a>b=8mbit one way; may be given several times
    #[arg(long, value_name = "A-B=RATE", conflicts_with_all = ["rail", "rate", "delay", "jitter", "loss", "queue", "state"])]
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
    /// Take the hosts' ports down: carrier and routes are lost
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

fn parse_rail(text: &str) -> Result<usize, String> {
    let index = text.strip_prefix("rail").unwrap_or(text);
    index.parse().map_err(|_| "write 1 or rail1".to_owned())
}

pub fn run(args: SetArgs, printer: &Printer) -> anyhow::Result<()> {
    let lab = Lab::open(&args.name)?;
    let Some(rail) = args.rail else {
        multirail_lab::be_on_time();
        lab.set_links(&args.link)?;
        let named = |from: &str, to: &str| args.link.iter().any(|link| link.is_of(from, to));
        return list::print_links(&lab, printer, named);
    };
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
    list::print_rail(&lab, &summary, topology, rail, printer)
}
