//! `multirail bench`: the MuniSocket ping-pong, every strategy beside plain TCP and the ideal, in one run.

mod stream;
mod transports;

use super::{SessionArgs, host_address};
use crate::printer::Printer;
use anyhow::Context;
use clap::builder::ArgPredicate;
use multirail::bench::{Bench, MAX_MESSAGE_BYTES, MAX_STREAM, Measured};
use multirail::transport::Transport;
use multirail::{Session, Strategy, service};
use multirail_proto::units::{effective_mbit_s, format_size, parse_rate_mbit_s, parse_size};
use serde::Serialize;
use std::process::ExitCode;

/// Ping-pong messages with `multirail serve` on another host, strategy beside strategy
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  multirail bench node2 --sizes 8k,64k,4m --strategies tcp,two-ended,adaptive --repeat 5\n\n\
    `tcp` is one plain TCP connection on the best rail, blocking calls, none of our protocol; `oracle` a fixed split by \
    --oracle-rates, a plain connection a rail. Figures are medians over the repeats; within one repeat all lines run one after \
    the other, and ratio_to_tcp is taken repeat by repeat.\n\n\
    A stream's figures are what the receiving application got, with a new session for each repeat:\n  \
    multirail bench node2 --pattern stream --sizes 64k --strategies adaptive --seconds 10\n\n\
    What can carry an edge of a pipeline, one way, beside plain TCP:\n  \
    multirail bench localhost --transports tcp,shm"
)]
pub struct BenchArgs {
    /// Host that runs `multirail serve`
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// Message sizes
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1k,8k,64k,512k,4m",
        default_value_if("transports", ArgPredicate::IsPresent, "1,8,64,512,4k,16k,64k,256k,1m,4m,16m"),
        value_parser = size
    )]
    sizes: Vec<u64>,
    /// `ping-pong` sends each message there and back; `stream` sends one way, one message behind the other
    #[arg(long, value_enum, default_value_t = Pattern::PingPong)]
    pattern: Pattern,
    /// How long each stream lasts
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=MAX_STREAM.as_secs() as i64))]
    seconds: u32,
    /// What to measure: tcp, oracle, or a strategy
    #[arg(long, value_delimiter = ',', default_value = "tcp,single,equal-partition,shared-counter,two-ended,adaptive")]
    strategies: Vec<Line>,
    /// Measure these transports beside plain TCP, instead of strategies: tcp, shm, striped, ucx
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["strategies", "pattern", "oracle_rates"], value_parser = transport)]
    transports: Vec<Transport>,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The rails' rates in Mbit/s, in the order of `multirail rails`, for `oracle` and for choosing tcp's rail
    #[arg(long, value_delimiter = ',', value_parser = rate)]
    oracle_rates: Vec<f64>,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
enum Pattern {
    PingPong,
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Line {
    Tcp,
    Oracle,
    Strategy(Strategy),
}

impl std::str::FromStr for Line {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Line::Tcp),
            "oracle" => Ok(Line::Oracle),
            other => other.parse().map(Line::Strategy).map_err(|e| format!("{e}, and tcp and oracle to compare with")),
        }
    }
}

impl Line {
    fn name(self) -> &'static str {
        match self {
            Line::Tcp => "tcp",
            Line::Oracle => "oracle",
            Line::Strategy(strategy) => strategy.name(),
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    if (1..=MAX_MESSAGE_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("sizes go from 1 to {}", format_size(MAX_MESSAGE_BYTES)))
    }
}

fn transport(text: &str) -> Result<Transport, String> {
    match text.parse()? {
        Transport::Memory => Err("memory is within one process; there is nothing to connect to".to_owned()),
        between => Ok(between),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    parse_rate_mbit_s(text).map_err(|e| e.to_string())
}

/// One strategy at one size.
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

pub fn run(args: BenchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    if !args.transports.is_empty() {
        return transports::measure(&args, &args.transports, printer);
    }
    service::block_on(async {
        Ok(match args.pattern {
            Pattern::PingPong => measure(&args, printer).await,
            Pattern::Stream => stream::measure(&args, printer).await,
        })
    })?
}

async fn measure(args: &BenchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let config = args.session.config()?;
    let session = Session::connect(&host_address(&args.host)?, config.clone()).await?;
    let mut bench = Bench::new(session, config.token.as_ref()).await?;
    let rails = bench.rails();
    if args.strategies.contains(&Line::Oracle) {
        anyhow::ensure!(
            args.oracle_rates.len() == rails.len(),
            "oracle needs --oracle-rates with {} rates, one for each rail that `multirail rails` shows; {} given",
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

/// The rail that plain TCP is best on: by the given rates, else by trying.
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
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
