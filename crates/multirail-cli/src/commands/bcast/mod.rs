//! `multirail bcast`.

mod args;
mod output;
mod party;
pub(super) mod progress;
mod ready;
mod receive;
mod root;

pub use args::BcastArgs;
pub(super) use args::split_destination;

use crate::interrupt;
use crate::printer::Printer;
use multirail::multicast::Joining;
use multirail::runtime;
use party::Role;
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: BcastArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    super::raise_file_limit();
    let interrupted = interrupt::listen()?;
    let joining = args.joining();
    runtime::block_on(async {
        let broadcast = async {
            match party::role(&args).await? {
                Role::Root(invited) => root::run(&args, invited, printer, (began, joining.clone())).await,
                Role::Receiver => receive::run(&args, printer).await,
                Role::Spare => Ok(ExitCode::SUCCESS),
            }
        };
        tokio::pin!(broadcast);
        loop {
            tokio::select! {
                done = &mut broadcast => return Ok(done),
                // When the given hosts are complete, a signal ends the time for others.
                () = interrupted.notified() => if !joining.as_ref().is_some_and(Joining::stop) {
                    return Ok(Err(anyhow::anyhow!(
                        "interrupted; the same command continues with the pieces that the hosts hold"
                    )));
                },
            }
        }
    })?
}
