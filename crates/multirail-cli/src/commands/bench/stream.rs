//! `multirail bench --pattern stream`: messages one way without a pause.

use super::super::host_address;
use super::args::{BenchArgs, Line};
use super::median::median;
use crate::printer::Printer;
use anyhow::{Context, bail};
use multirail::bench::{Bench, INTERVAL, Streamed};
use multirail::{Session, Strategy};
use multirail_proto::units::format_size;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// The result of one strategy at one size.
#[derive(Serialize)]
struct Row {
    pattern: &'static str,
    strategy: &'static str,
    message_bytes: u64,
    rails: usize,
    channels: u32,
    rate_mbit_s: f64,
    rate_mbit_s_min: f64,
    rate_mbit_s_max: f64,
    cpu_s_per_gib: f64,
    interval_s: f64,
    interval_mbit_s: Vec<f64>,
    interval_channels: Vec<u32>,
    repeats: u32,
}

pub(super) async fn measure(args: &BenchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let strategy = |line: &Line| match line {
        Line::Strategy(strategy) => Ok(*strategy),
        Line::Tcp | Line::Oracle => bail!("--pattern stream measures strategies; for plain TCP use iperf3"),
    };
    let strategies: Vec<Strategy> = args.strategies.iter().map(strategy).collect::<anyhow::Result<_>>()?;
    let time = Duration::from_secs(u64::from(args.seconds));
    printer.text(format!(
        "{:>10} {:<16} {:>10} {:>17} {:>9} {:>10}",
        "message", "strategy", "Mbit/s", "(min-max)", "channels", "CPU s/GiB"
    ));
    for &message_bytes in &args.sizes {
        for &strategy in &strategies {
            let mut results = Vec::new();
            let mut rails = Vec::new();
            for _ in 0..args.repeat {
                // Each repeat has a session of its own, which determines the number of channels
                // again.
                let config = args.session.config()?;
                let session = Session::connect(&host_address(&args.host)?, config.clone()).await?;
                let mut bench = Bench::new(session, &config).await?;
                let streamed = bench.stream(message_bytes, time, strategy, args.session.fragment_bytes).await;
                results.push(streamed.with_context(|| format!("{strategy} of {}", format_size(message_bytes)))?);
                rails = bench.rails();
                bench.close().await?;
            }
            let channels = rails.iter().map(|r| r.channels).sum();
            printer.row(&summarize(strategy, message_bytes, &results, rails.len(), channels), human);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn summarize(strategy: Strategy, message_bytes: u64, results: &[Streamed], rails: usize, channels: u32) -> Row {
    let rates: Vec<f64> = results.iter().map(Streamed::rate_mbit_s).collect();
    let gib = |r: &Streamed| r.bytes as f64 / f64::from(1 << 30);
    // Intervals are those of the last repeat. Those of different repeats cannot be combined.
    let last = results.last();
    let mbit_s = |bytes: &u64| 8.0 * *bytes as f64 / 1e6 / INTERVAL.as_secs_f64();
    Row {
        pattern: "stream",
        strategy: strategy.name(),
        message_bytes,
        rails,
        channels,
        rate_mbit_s: median(rates.clone()),
        rate_mbit_s_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        rate_mbit_s_max: rates.iter().copied().fold(0.0, f64::max),
        cpu_s_per_gib: median(results.iter().map(|r| r.cpu_s / gib(r)).collect()),
        interval_s: INTERVAL.as_secs_f64(),
        interval_mbit_s: last.map_or_else(Vec::new, |r| r.interval_bytes.iter().map(mbit_s).collect()),
        interval_channels: last.map_or_else(Vec::new, |r| r.interval_channels.clone()),
        repeats: results.len() as u32,
    }
}

fn human(row: &Row) -> String {
    format!(
        "{:>10} {:<16} {:>10.1} {:>17} {:>9} {:>10.2}",
        format_size(row.message_bytes),
        row.strategy,
        row.rate_mbit_s,
        format!("({:.1}-{:.1})", row.rate_mbit_s_min, row.rate_mbit_s_max),
        row.channels,
        row.cpu_s_per_gib
    )
}
