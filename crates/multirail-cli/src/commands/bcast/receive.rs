//! A host that runs the same command as the root and receives. It serves until the broadcast is
//! over.

use super::args::{BcastArgs, split_destination};
use crate::printer::Printer;
use anyhow::Context;
use multirail::multicast::attend::{Attendance, Part, Verdict};
use multirail::server::{self, Server};
use multirail::session::ListenConfig;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub async fn run(args: &BcastArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let (folder, _) = split_destination(args.to());
    let root = folder.canonicalize().with_context(|| format!("--to: there is no {} here", folder.display()))?;
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, args.port.unwrap_or(server::DEFAULT_PORT)));
    let listen = ListenConfig::new(address, args.session.config()?);
    let attendance = Arc::new(Attendance::default());
    let serve = Server::new(listen, root).attending(attendance.clone()).serve(|_| {});
    let over = async {
        let wait = Duration::from_secs(args.wait.into());
        let Ok(mut part) = tokio::time::timeout(wait, attendance.changed(&Part::Waiting)).await else {
            anyhow::bail!("the root did not connect within {wait:?}; does it run with the same port and token?")
        };
        loop {
            match part {
                Part::Over(Verdict::Complete) => return Ok(()),
                Part::Over(Verdict::Failed(why)) => anyhow::bail!("this host is incomplete: {why}"),
                Part::RootLost => {
                    anyhow::bail!("the root disappeared before it reported the outcome; run the command again")
                }
                Part::Waiting | Part::Attending => part = attendance.changed(&part).await,
            }
        }
    };
    tokio::select! {
        served = serve => served.context("serving until the broadcast is over")?,
        over = over => over?,
    }
    printer.note("complete");
    Ok(ExitCode::SUCCESS)
}
