//! `multirail place status`.

use super::block_on;
use crate::printer::Printer;
use multirail::placement::{self, Status};
use std::fmt::Write;
use std::process::ExitCode;

/// Show what placement does: ports, other hosts
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail place status\n  multirail --json place status")]
pub struct StatusArgs {}

pub fn run(StatusArgs {}: &StatusArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let status = block_on(placement::status())?;
    printer.row(&status, text);
    Ok(ExitCode::SUCCESS)
}

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
        let bytes = peer.bytes_by_port.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "peer {first}: ports {ports}, bytes {bytes}");
    }
    text.trim_end().to_owned()
}
