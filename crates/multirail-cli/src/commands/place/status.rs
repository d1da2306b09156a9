//! `multirail place status`.

use super::{block_on, prometheus};
use crate::printer::Printer;
use multirail::placement::{self, Status};
use std::fmt::Write;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Show what placement does: ports, other hosts, streams
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  multirail place status\n  multirail --json place status\n  multirail place status --prometheus"
)]
pub struct StatusArgs {
    /// As text that Prometheus reads
    #[arg(long)]
    prometheus: bool,
}

pub fn run(args: &StatusArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let status = block_on(placement::status())?;
    if args.prometheus {
        // Always this text: it is a format of its own, like JSON.
        printer.raw(prometheus::text(&status));
    } else {
        printer.row(&status, text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Show it again every second, until interrupted or placement ends
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail place watch\n  multirail --json place watch")]
pub struct WatchArgs {}

pub fn watch(WatchArgs {}: &WatchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
    const PERIOD: Duration = Duration::from_secs(1);
    let clear = if std::io::stdout().is_terminal() { CLEAR_SCREEN } else { "" };
    let mut before: Option<(Instant, Status)> = None;
    loop {
        let (now, status) = (Instant::now(), block_on(placement::status())?);
        printer.row(&status, |status| {
            let mut text = format!("{clear}{}", text(status));
            if let Some((then, before)) = &before {
                text.push_str(&rates(before, status, now.duration_since(*then)));
            }
            text
        });
        before = Some((now, status));
        std::thread::sleep(PERIOD);
    }
}

/// What each port carried meanwhile.
fn rates(before: &Status, now: &Status, time: Duration) -> String {
    let ports = before.ports.iter().zip(&now.ports);
    let rate = |(a, b): (&placement::PortStatus, &placement::PortStatus)| {
        let mbit = b.bytes.saturating_sub(a.bytes) as f64 * 8.0 / 1e6;
        format!(" {} {:.1}", b.port, mbit / time.as_secs_f64())
    };
    format!("\nMbit/s:{}", ports.map(rate).collect::<String>())
}

/// More would leave the screen; `--json` has all.
const SHOWN_STREAMS: usize = 20;

fn text(status: &Status) -> String {
    let mut text = String::new();
    let agent = status.agent_pid.map_or("no agent".to_owned(), |pid| format!("agent {pid}"));
    let _ = writeln!(text, "{} since {}, {agent}", status.policy, status.since);
    let _ = writeln!(
        text,
        "{:<4} {:<16} {:>10} {:>14} {:>16} {:>12}  usable",
        "port", "name", "Mbit/s", "packets", "bytes", "backlog"
    );
    for port in &status.ports {
        let speed = port.speed_mbit_s.map_or("-".to_owned(), |speed| speed.to_string());
        let usable = match (port.usable, port.why_not) {
            (true, _) => "yes".to_owned(),
            (false, why) => format!("no: {}", why.unwrap_or("left out")),
        };
        let _ = writeln!(
            text,
            "{:<4} {:<16} {speed:>10} {:>14} {:>16} {:>12}  {usable}",
            port.number, port.port, port.packets, port.bytes, port.backlog_bytes
        );
    }
    for peer in &status.peers {
        let first = peer.macs.first().map(ToString::to_string).unwrap_or_default();
        let ports = peer.usable_ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let ms = peer.worked_by_port_ns.iter().map(|ns| format!("{:.1}", *ns as f64 / 1e6)).collect::<Vec<_>>();
        let _ = writeln!(text, "peer {first}: ports {ports}; worked for it, in ms: {}", ms.join(" "));
    }
    for stream in status.streams.iter().take(SHOWN_STREAMS) {
        let _ = writeln!(
            text,
            "{} {} -> {}: {} port {} ({}), {} bytes, {} under way, {} moves",
            stream.protocol,
            stream.local,
            stream.remote,
            if stream.pinned { "stays at" } else { "spread, last at" },
            stream.port,
            stream.why,
            stream.bytes,
            stream.backlog_bytes,
            stream.moves
        );
    }
    if status.streams.len() > SHOWN_STREAMS {
        let _ = writeln!(text, "and {} more streams", status.streams.len() - SHOWN_STREAMS);
    }
    if let Some(counts) = &status.exchange {
        let (hellos, refused) = (&counts.hellos, &counts.refused);
        let _ = writeln!(
            text,
            "hellos: {} taken, {} replayed, {} of another port, {} contradictory, {} too many, {} forged, {} malformed",
            hellos.taken,
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
