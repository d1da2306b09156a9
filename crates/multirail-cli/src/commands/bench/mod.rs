//! `multirail bench`: the ping-pong of the MuniSocket paper, with all strategies, plain TCP and the
//! ideal split in one run.

mod args;
mod median;
mod pingpong;
mod stream;
mod transports;

pub use args::BenchArgs;

use crate::printer::Printer;
use args::Pattern;
use multirail::runtime;
use std::process::ExitCode;

pub fn run(args: BenchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    if !args.transports.is_empty() {
        return transports::measure(&args, &args.transports, printer);
    }
    runtime::block_on(async {
        Ok(match args.pattern {
            Pattern::PingPong => pingpong::measure(&args, printer).await,
            Pattern::Stream => stream::measure(&args, printer).await,
        })
    })?
}
