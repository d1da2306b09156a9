//! The least time in which data can get from one cluster to all others, whatever the method.
//!
//! `bound FILE ROOT TOTAL_BYTES` prints seconds, or `never`. Each line of FILE tells from when on
//! (seconds after the start) links have which rates (bytes/s); what a line does not name stays as
//! it was, and is 0 before its first:
//!
//! ```text
//! # SECONDS from>to=BYTES_S ..., or one-other=BYTES_S for both directions
//! 0   A-B=10e6 A-C=4e6 A-D=3e6
//! 0   B-C=6e6 B-D=8e6 C>D=5e6 D>C=5e6
//! 30  A-D=0.8e6 B-C=0.8e6
//! ```

use multirail_proto::multicast::plan::bound::{Rates, bound_time_us};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("bound: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<String, String> {
    let [file, root, total] = arguments else { return Err("usage: bound FILE ROOT TOTAL_BYTES".to_owned()) };
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let (names, schedule) = parse(&text).map_err(|problem| format!("{file}: {problem}"))?;
    let root = names.iter().position(|name| name == root).ok_or(format!("{file} names no cluster {root}"))?;
    let total: f64 = total.parse().map_err(|_| format!("{total:?} is no number of bytes"))?;
    Ok(match bound_time_us(root, &schedule, total) {
        Some(time_us) => format!("{:.6}", time_us as f64 / 1e6),
        None => "never".to_owned(),
    })
}

/// The names of clusters, in the order of their first mention, and rates by time.
fn parse(text: &str) -> Result<(Vec<String>, Vec<Rates>), String> {
    let mut names: Vec<String> = Vec::new();
    let mut changes = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let bad = |what: &str| format!("line {}: {what:?} is not SECONDS a>b=BYTES_S ...", number + 1);
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(first) = words.next() else { continue };
        let from_us = (number_of(first).ok_or_else(|| bad(first))? * 1e6).round() as u64;
        for word in words {
            let (link, rate) = word.split_once('=').ok_or_else(|| bad(word))?;
            let rate = number_of(rate).ok_or_else(|| bad(word))?;
            let both = !link.contains('>');
            let (from, to) = link.split_once(if both { '-' } else { '>' }).ok_or_else(|| bad(word))?;
            let mut place = |name: &str| match names.iter().position(|known| known == name) {
                Some(place) => place,
                None => {
                    names.push(name.to_owned());
                    names.len() - 1
                }
            };
            let (from, to) = (place(from), place(to));
            changes.push((from_us, from, to, rate));
            if both {
                changes.push((from_us, to, from, rate));
            }
        }
    }
    // Changes of one time stay in the order of the file.
    changes.sort_by_key(|change| change.0);
    let mut schedule: Vec<Rates> = Vec::new();
    for (from_us, from, to, rate) in changes {
        let (same, links) = match schedule.last() {
            Some(last) => (last.from_us == from_us, last.link_bytes_s.clone()),
            None => (false, vec![vec![0.0; names.len()]; names.len()]),
        };
        if !same {
            schedule.push(Rates { from_us, link_bytes_s: links });
        }
        if let Some(last) = schedule.last_mut() {
            last.link_bytes_s[from][to] = rate;
        }
    }
    Ok((names, schedule))
}

fn number_of(word: &str) -> Option<f64> {
    word.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}
