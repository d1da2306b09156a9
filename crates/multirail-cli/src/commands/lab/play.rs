//! `multirail lab play`: changes of links at given times.

use crate::printer::Printer;
use anyhow::{Context, bail};
use clap::Args;
use multirail_lab::{Lab, LinkSetting};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Change links between clusters at the times that a plan gives, and end after its last line
#[derive(Args)]
#[command(after_help = "\
Each line of a plan has a time, in seconds after the start of this command, and links as in `lab set --link`:
  0     a-b=80mbit a-c=32mbit
  30    a-b=6.4mbit 'a>c=1mbit'
  60.5  a-b=80mbit

Quotes are optional. A # starts a comment.")]
pub struct PlayArgs {
    /// The plan
    file: PathBuf,
    /// The lab's name
    #[arg(long, default_value = super::DEFAULT_NAME)]
    name: String,
}

/// The latest time of a step. `Duration` cannot represent all larger numbers.
const TIME_MAX_S: f64 = 1e6;

/// One line of a plan.
#[derive(Debug, PartialEq)]
struct Step {
    at_s: f64,
    links: Vec<LinkSetting>,
}

#[derive(Serialize)]
struct StepRow {
    kind: &'static str,
    /// The time in the plan, after the start.
    at_s: f64,
    /// When the step began, after the start.
    actual_s: f64,
    /// How long the step took.
    took_ms: f64,
    links: Vec<String>,
}

pub fn run(args: PlayArgs, printer: &Printer) -> anyhow::Result<()> {
    let start = Instant::now();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let steps = parse(&text).with_context(|| args.file.display().to_string())?;
    let lab = Lab::open(&args.name)?;
    multirail_lab::raise_priority();
    for step in steps {
        let at = Duration::from_secs_f64(step.at_s);
        std::thread::sleep(at.saturating_sub(start.elapsed()));
        let actual = start.elapsed();
        lab.set_links(&step.links)?;
        let row = StepRow {
            kind: "step",
            at_s: step.at_s,
            actual_s: actual.as_secs_f64(),
            took_ms: (start.elapsed() - actual).as_secs_f64() * 1e3,
            links: step.links.iter().map(LinkSetting::to_string).collect(),
        };
        printer.row(&row, |row| format!("{:.3} s  {}", row.actual_s, row.links.join(" ")));
    }
    Ok(())
}

/// Parses the whole plan. It precedes the first step, so a mistake in the last line shows at once.
fn parse(text: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(time) = words.next() else { continue };
        let step = step(time, words).with_context(|| format!("line {}", index + 1))?;
        if steps.last().is_some_and(|before| before.at_s > step.at_s) {
            bail!("line {}: {time} s is before the previous line", index + 1);
        }
        steps.push(step);
    }
    Ok(steps)
}

fn step<'a>(time: &str, words: impl Iterator<Item = &'a str>) -> anyhow::Result<Step> {
    let at_s = time.parse().ok().filter(|at_s| (0.0..=TIME_MAX_S).contains(at_s));
    let at_s = at_s.with_context(|| format!("{time:?} is not a time in seconds"))?;
    let links = words.map(|word| word.trim_matches('\'').parse()).collect::<Result<Vec<LinkSetting>, _>>()?;
    if links.is_empty() {
        bail!("the line has no link");
    }
    Ok(Step { at_s, links })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_parsed() {
        let steps = parse("# mayhem\n\n0 a-b=80mbit\n2.5 'a>b=8mbit' b-c=1mbit  # less\n2.5 a-b=1mbit\n").unwrap();
        let times: Vec<(f64, usize)> = steps.iter().map(|step| (step.at_s, step.links.len())).collect();
        assert_eq!(times, [(0.0, 1), (2.5, 2), (2.5, 1)]);
        assert_eq!(steps[1].links[0], "a>b=8mbit".parse().unwrap());
    }

    #[test]
    fn an_invalid_plan_is_refused_with_its_line() {
        for (text, word) in [
            ("0 a-b=1mbit\n1\n", "line 2"),
            ("0 a-b=1mbit\nsoon a-b=1mbit", "\"soon\" is not a time"),
            ("-1 a-b=1mbit", "not a time"),
            ("nan a-b=1mbit", "not a time"),
            ("5 a-b=1mbit\n\n4.9 a-b=1mbit", "line 3: 4.9 s is before"),
            ("0 a-b", "line 1"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
