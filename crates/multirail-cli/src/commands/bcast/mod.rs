//! `multirail bcast`.

mod args;
mod output;
mod party;
mod progress;
mod ready;
mod receive;
mod root;

pub use args::BcastArgs;

use crate::interrupt;
use crate::printer::Printer;
use multirail::runtime;
use party::Role;
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: BcastArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    super::raise_file_limit();
    let interrupted = interrupt::listen()?;
    runtime::block_on(async {
        let broadcast = async {
            match party::role(&args).await? {
                Role::Root(invited) => root::run(&args, invited, printer, began).await,
                Role::Receiver => receive::run(&args, printer).await,
                Role::Spare => Ok(ExitCode::SUCCESS),
            }
        };
        Ok(tokio::select! {
            done = broadcast => done,
            () = interrupted.notified() => Err(anyhow::anyhow!(
                "interrupted; the same command continues with the pieces that the hosts hold"
            )),
        })
    })?
}
