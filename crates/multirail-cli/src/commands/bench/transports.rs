//! `multirail bench --transports`: the transports of pipeline edges, and plain TCP.

use super::super::host_address;
use super::args::BenchArgs;
use super::median::median;
use crate::printer::Printer;
use anyhow::Context;
use multirail::bench::curve::{EFFORT, EdgeLine, Line, PlainLine, Point, point};
use multirail::pipeline::edge::{DEFAULT_LIMIT_BYTES, Transport};
use multirail_proto::units::format_size;
use serde::Serialize;
use std::process::ExitCode;

/// The name of the plain TCP line.
const PLAIN: &str = "plain-tcp";

/// The result of one transport at one size.
#[derive(Serialize)]
struct Row {
    transport: &'static str,
    message_bytes: u64,
    one_way_us: f64,
    one_way_us_min: f64,
    one_way_us_max: f64,
    bandwidth_mbit_s: f64,
    bandwidth_mbit_s_min: f64,
    bandwidth_mbit_s_max: f64,
    latency_ratio_to_plain: f64,
    bandwidth_ratio_to_plain: f64,
    repeats: u32,
}

pub(super) fn measure(args: &BenchArgs, wanted: &[Transport], printer: &Printer) -> anyhow::Result<ExitCode> {
    if let Some(bytes) = args.sizes.iter().find(|bytes| **bytes > DEFAULT_LIMIT_BYTES) {
        let limit = format_size(DEFAULT_LIMIT_BYTES);
        anyhow::bail!("--transports measures messages of at most {limit}, not {}", format_size(*bytes));
    }
    let config = args.session.config()?;
    let host = host_address(&args.host)?;
    let plain: Box<dyn Line> = Box::new(PlainLine::dial(&host, &config)?);
    let mut lines = vec![(PLAIN, plain)];
    for &transport in wanted {
        let line = EdgeLine::dial(&host, &config, Some(transport)).with_context(|| transport.name())?;
        lines.push((transport.name(), Box::new(line)));
    }
    printer.text(format!(
        "{:>10} {:<10} {:>11} {:>21} {:>11} {:>21} {:>8} {:>8}",
        "message", "transport", "one way us", "(min-max)", "Mbit/s", "(min-max)", "x quick", "x Mbit/s"
    ));
    for &message_bytes in &args.sizes {
        let mut measured: Vec<Vec<Point>> = lines.iter().map(|_| Vec::new()).collect();
        for repeat in 0..args.repeat as usize {
            // Each repeat begins with another line, so that no line always follows the same one.
            for turn in 0..lines.len() {
                let at = (repeat + turn) % lines.len();
                let (name, line) = &mut lines[at];
                let point = point(&mut **line, message_bytes, EFFORT);
                measured[at].push(point.with_context(|| format!("{name} of {}", format_size(message_bytes)))?);
            }
        }
        for ((name, _), points) in lines.iter().zip(&measured) {
            printer.row(&summarize(name, points, &measured[0]), human);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn summarize(transport: &'static str, points: &[Point], plain: &[Point]) -> Row {
    let one_way: Vec<f64> = points.iter().map(|p| p.one_way_us).collect();
    let mbit_s: Vec<f64> = points.iter().map(|p| p.bandwidth_bytes_s * 8.0 / 1e6).collect();
    let (least, most) = (
        |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min),
        |v: &[f64]| v.iter().copied().fold(0.0, f64::max),
    );
    let ratio = |of: fn(&Point, &Point) -> f64| median(points.iter().zip(plain).map(|(ours, p)| of(ours, p)).collect());
    Row {
        transport,
        message_bytes: points.first().map_or(0, |p| p.message_bytes),
        one_way_us_min: least(&one_way),
        one_way_us_max: most(&one_way),
        one_way_us: median(one_way),
        bandwidth_mbit_s_min: least(&mbit_s),
        bandwidth_mbit_s_max: most(&mbit_s),
        bandwidth_mbit_s: median(mbit_s),
        latency_ratio_to_plain: ratio(|ours, plain| plain.one_way_us / ours.one_way_us),
        bandwidth_ratio_to_plain: ratio(|ours, plain| ours.bandwidth_bytes_s / plain.bandwidth_bytes_s),
        repeats: points.len() as u32,
    }
}

fn human(row: &Row) -> String {
    format!(
        "{:>10} {:<10} {:>11.2} {:>21} {:>11.1} {:>21} {:>8.2} {:>8.2}",
        format_size(row.message_bytes),
        row.transport,
        row.one_way_us,
        format!("({:.2}-{:.2})", row.one_way_us_min, row.one_way_us_max),
        row.bandwidth_mbit_s,
        format!("({:.1}-{:.1})", row.bandwidth_mbit_s_min, row.bandwidth_mbit_s_max),
        row.latency_ratio_to_plain,
        row.bandwidth_ratio_to_plain
    )
}
