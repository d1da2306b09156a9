//! The ping-pong of all strategies.

use super::super::host_address;
use super::args::{BenchArgs, Line};
use super::median::median;
use crate::printer::Printer;
use anyhow::Context;
use multirail::Session;
use multirail::bench::{Bench, Measured};
use multirail_proto::units::{effective_mbit_s, format_size};
use serde::Serialize;
use std::process::ExitCode;

/// The result of one strategy at one size.
#[derive(Serialize)]
struct Row {
    strategy: &'static str,
    message_bytes: u64,
    rails: usize,
    channels: u32,
    effective_mbit_s: f64,
    effective_mbit_s_min: f64,
    effective_mbit_s_max: f64,
    rtt_us_mean: f64,
    rtt_us_p99: f64,
    control_messages: f64,
    cpu_s_per_gib: f64,
    ratio_to_tcp: Option<f64>,
    ratio_to_oracle: Option<f64>,
    repeats: u32,
}

/// Measures all strategies at all sizes.
pub(super) async fn measure(args: &BenchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let config = args.session.config()?;
    let session = Session::connect(&host_address(&args.host)?, config.clone()).await?;
    let mut bench = Bench::new(session, &config).await?;
    let rails = bench.rails();
    if args.strategies.contains(&Line::Oracle) {
        anyhow::ensure!(
            args.oracle_rates.len() == rails.len(),
            "oracle needs --oracle-rates with {} rates, one for each rail of `multirail rails`, not {}",
            rails.len(),
            args.oracle_rates.len()
        );
    }
    printer.text(format!(
        "{:>10} {:<16} {:>10} {:>17} {:>11} {:>11} {:>9} {:>10} {:>7} {:>9}",
        "message", "strategy", "Mbit/s", "(min-max)", "RTT us", "p99 us", "control", "CPU s/GiB", "x tcp", "x oracle"
    ));
    for &message_bytes in &args.sizes {
        let mut measured: Vec<Vec<Measured>> = args.strategies.iter().map(|_| Vec::new()).collect();
        let best = best_rail(&mut bench, &args.oracle_rates, message_bytes).await?;
        for _ in 0..args.repeat {
            for (line, results) in args.strategies.iter().zip(&mut measured) {
                let result = match line {
                    Line::Tcp => bench.tcp(message_bytes, best).await,
                    Line::Oracle => bench.oracle(message_bytes, &args.oracle_rates).await,
                    Line::Strategy(s) => bench.session(message_bytes, *s, args.session.fragment_bytes).await,
                };
                results.push(result.with_context(|| format!("{} of {}", line.name(), format_size(message_bytes)))?);
            }
        }
        let means = |which: Line| {
            let at = args.strategies.iter().position(|l| *l == which)?;
            Some(measured[at].iter().map(Measured::mean_us).collect::<Vec<f64>>())
        };
        let (tcp, oracle) = (means(Line::Tcp), means(Line::Oracle));
        for (line, results) in args.strategies.iter().zip(&measured) {
            let row = summarize(*line, message_bytes, results, tcp.as_deref(), oracle.as_deref(), &bench);
            printer.row(&row, human);
        }
    }
    bench.close().await?;
    Ok(ExitCode::SUCCESS)
}

/// The fastest rail for plain TCP: by the given rates, or else by a measurement.
async fn best_rail(bench: &mut Bench, rates: &[f64], message_bytes: u64) -> anyhow::Result<usize> {
    if !rates.is_empty() {
        let best = rates.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        return Ok(best.map_or(0, |(i, _)| i));
    }
    let mut times = Vec::new();
    for rail in 0..bench.rails().len() {
        times.push(bench.tcp(message_bytes, rail).await?.mean_us());
    }
    Ok((0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0))
}

fn summarize(
    line: Line,
    message_bytes: u64,
    results: &[Measured],
    tcp: Option<&[f64]>,
    oracle: Option<&[f64]>,
    bench: &Bench,
) -> Row {
    let means: Vec<f64> = results.iter().map(Measured::mean_us).collect();
    let rates: Vec<f64> = means.iter().map(|m| effective_mbit_s(message_bytes, *m)).collect();
    let ratio_to = |other: Option<&[f64]>| {
        other.map(|other| median(other.iter().zip(&means).map(|(theirs, ours)| theirs / ours).collect()))
    };
    let mut all: Vec<f64> = results.iter().flat_map(|r| &r.round_trips_us).copied().collect();
    all.sort_by(f64::total_cmp);
    let rails = bench.rails();
    let gib = |m: &Measured| m.moved_bytes as f64 / f64::from(1 << 30);
    let (used_rails, channels) = match line {
        Line::Tcp => (1, 1),
        Line::Oracle => (rails.len(), rails.len() as u32),
        Line::Strategy(_) => (rails.len(), rails.iter().map(|r| r.channels).sum()),
    };
    Row {
        strategy: line.name(),
        message_bytes,
        rails: used_rails,
        channels,
        effective_mbit_s: median(rates.clone()),
        effective_mbit_s_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        effective_mbit_s_max: rates.iter().copied().fold(0.0, f64::max),
        rtt_us_mean: median(means.clone()),
        rtt_us_p99: all[(all.len() * 99 / 100).min(all.len() - 1)],
        control_messages: median(results.iter().map(|r| r.control_messages).collect()),
        cpu_s_per_gib: median(results.iter().map(|m| m.cpu_s / gib(m)).collect()),
        ratio_to_tcp: ratio_to(tcp),
        ratio_to_oracle: ratio_to(oracle),
        repeats: results.len() as u32,
    }
}

fn human(row: &Row) -> String {
    let ratio = |r: Option<f64>| r.map_or_else(|| "-".to_owned(), |r| format!("{r:.3}"));
    format!(
        "{:>10} {:<16} {:>10.1} {:>17} {:>11.1} {:>11.1} {:>9.1} {:>10.2} {:>7} {:>9}",
        format_size(row.message_bytes),
        row.strategy,
        row.effective_mbit_s,
        format!("({:.1}-{:.1})", row.effective_mbit_s_min, row.effective_mbit_s_max),
        row.rtt_us_mean,
        row.rtt_us_p99,
        row.control_messages,
        row.cpu_s_per_gib,
        ratio(row.ratio_to_tcp),
        ratio(row.ratio_to_oracle)
    )
}
