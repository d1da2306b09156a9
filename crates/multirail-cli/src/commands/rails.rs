//! `multirail rails`.

use super::{SessionArgs, host_address};
use crate::escape::one_line;
use crate::printer::Printer;
use multirail::{Session, bench, runtime};
use serde::Serialize;
use std::process::ExitCode;

/// Show each pair of addresses to a host: whether it is used, why not, its rate and round-trip time
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail rails storage1\n  multirail rails storage1:7717 --rails 'eth*,!eth3'")]
pub struct RailsArgs {
    /// The host, which runs `multirail serve`
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct Row {
    rail: Option<u32>,
    used: bool,
    local: String,
    local_port: String,
    remote: String,
    remote_port: String,
    reason: Option<String>,
    rate_mbit_s: Option<f64>,
    rtt_us: Option<u32>,
}

pub fn run(args: RailsArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let config = args.session.config()?;
    let rows = runtime::block_on(async {
        let host = host_address(&args.host)?;
        let (mut session, pairs) = Session::connect_and_tell(&host, config).await?;
        bench::measure_rails(&mut session).await?;
        let status = session.rails();
        let rows: Vec<Row> = pairs
            .iter()
            .map(|pair| {
                let same = |a: &std::net::SocketAddr, b: std::net::IpAddr| a.ip().to_canonical() == b;
                let rail = status.iter().filter(|_| pair.is_rail()).find(|r| {
                    r.addresses.is_some_and(|(l, p)| same(&l, pair.local.address) && same(&p, pair.remote.address))
                });
                Row {
                    rail: rail.map(|r| r.rail),
                    used: rail.is_some(),
                    local: pair.local.address.to_string(),
                    local_port: pair.local.name.clone(),
                    remote: pair.remote.address.to_string(),
                    remote_port: pair.remote.name.clone(),
                    reason: pair.skip.as_ref().map(ToString::to_string),
                    rate_mbit_s: rail.map(|r| r.rate_mbit_s),
                    rtt_us: rail.map(|r| r.rtt_us),
                }
            })
            .collect();
        session.close().await?;
        Ok(rows)
    })?;
    printer.text(format!("{:<6} {:<34} {:<34} {:>13} {:>9}", "rail", "from", "to", "rate Mbit/s", "RTT us"));
    for row in rows {
        printer.row(&row, |r| {
            let from = format!("{} {}", r.local_port, r.local);
            // The peer chooses the names of its ports.
            let to = format!("{} {}", one_line(&r.remote_port), r.remote);
            match (r.rail, r.rate_mbit_s, r.rtt_us) {
                (Some(rail), Some(rate), Some(rtt)) => format!("{rail:<6} {from:<34} {to:<34} {rate:>13.1} {rtt:>9}"),
                _ => format!("{:<6} {from:<34} {to:<34} skipped: {}", "-", r.reason.as_deref().unwrap_or("lost")),
            }
        });
    }
    Ok(ExitCode::SUCCESS)
}
