//! `multirail place status`.

use super::prometheus;
use super::runtime::block_on;
use crate::printer::Printer;
use multirail::placement::{self, Status};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Show what placement does: ports, other hosts, streams
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  multirail place status\n  multirail --json place status\n  multirail place status --prometheus"
)]
pub struct StatusArgs {
    /// Print it in Prometheus' text format
    #[arg(long)]
    prometheus: bool,
}

pub fn run(args: &StatusArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let status = block_on(placement::status())?;
    if args.prometheus {
        // --json has no effect on this format.
        printer.raw(prometheus::text(&status));
    } else {
        printer.row(&status, text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Show the status every second, until interrupted or placement ends
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail place watch\n  multirail --json place watch")]
pub struct WatchArgs {}

pub fn watch(WatchArgs {}: &WatchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    const PERIOD: Duration = Duration::from_secs(1);
    let mut before: Option<(Instant, Status)> = None;
    loop {
        let (now, status) = (Instant::now(), block_on(placement::status())?);
        printer.clear_screen();
        printer.row(&status, |status| {
            let mut text = text(status);
            if let Some((then, before)) = &before {
                text.push_str(&rates(before, status, now.duration_since(*then)));
            }
            text
        });
        before = Some((now, status));
        std::thread::sleep(PERIOD);
    }
}

/// The rate at which each port was given bytes between two statuses.
fn rates(before: &Status, now: &Status, time: Duration) -> String {
    let ports = before.ports.iter().zip(&now.ports);
    let rate = |(a, b): (&placement::PortStatus, &placement::PortStatus)| {
        let mbit = b.bytes.saturating_sub(a.bytes) as f64 * 8.0 / 1e6;
        format!(" {} {:.1}", b.port, mbit / time.as_secs_f64())
    };
    format!("\nMbit/s:{}", ports.map(rate).collect::<String>())
}

/// Number of streams in the text, so that it fits on a screen; `--json` has all.
const SHOWN_STREAMS: usize = 20;

fn text(status: &Status) -> String {
    let mut text = String::new();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let up_s = now_s.saturating_sub(status.since_unix_s);
    let agent = status.agent_pid.map_or("no agent".to_owned(), |pid| format!("agent {pid}"));
    let _ = writeln!(text, "{}, up for {} s, {agent}", status.policy, up_s);
    let _ = writeln!(
        text,
        "{:<4} {:<16} {:>10} {:>14} {:>16} {:>12}  usable",
        "port", "name", "Mbit/s", "packets", "bytes", "queued"
    );
    for port in &status.ports {
        let speed = port.speed_mbit_s.map_or("-".to_owned(), |speed| speed.to_string());
        let usable = match (port.usable, port.unusable_reason) {
            (true, _) => "yes".to_owned(),
            (false, why) => format!("no: {}", why.unwrap_or("unknown reason")),
        };
        let _ = writeln!(
            text,
            "{:<4} {:<16} {speed:>10} {:>14} {:>16} {:>12}  {usable}",
            port.number, port.port, port.packets, port.bytes, port.queue_bytes
        );
    }
    for peer in &status.peers {
        let first = peer.macs.first().map(ToString::to_string).unwrap_or_default();
        let ports = peer.usable_ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let ms = peer.service_by_port_ns.iter().map(|ns| format!("{:.1}", *ns as f64 / 1e6)).collect::<Vec<_>>();
        let _ = writeln!(text, "peer {first}: ports {ports}; sending time by port, in ms: {}", ms.join(" "));
    }
    for stream in status.streams.iter().take(SHOWN_STREAMS) {
        let _ = writeln!(
            text,
            "{} {} -> {}: {} port {} ({}), {} bytes, {} unacknowledged, {} port changes",
            stream.protocol,
            stream.local,
            stream.remote,
            if stream.pinned { "pinned to" } else { "spread, last on" },
            stream.port,
            stream.reason,
            stream.bytes,
            stream.backlog_bytes,
            stream.port_changes
        );
    }
    if status.streams.len() > SHOWN_STREAMS {
        let _ = writeln!(text, "and {} more streams", status.streams.len() - SHOWN_STREAMS);
    }
    if let Some(counts) = &status.exchange {
        let (hellos, refused) = (&counts.hellos, &counts.refused);
        let _ = writeln!(
            text,
            "hellos: {} accepted, {} replayed, {} at another port, {} contradictory, {} too many, {} forged, {} malformed",
            hellos.accepted,
            hellos.replayed,
            hellos.other_port,
            hellos.contradictory,
            hellos.too_many,
            refused.forged,
            refused.malformed
        );
    }
    text.trim_end().to_owned()
}
