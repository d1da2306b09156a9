//! `multirail place agent`, and how `up` starts it.

use super::block_on;
use crate::{interrupt, printer::Printer};
use anyhow::{Context, bail};
use multirail::placement;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Follow links and other hosts for a placement that is up: `up` starts it itself, unless it is told not to
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  multirail place up --ports eth0,eth1 --token-file token --no-agent\n  multirail place agent"
)]
pub struct AgentArgs {}

pub fn run(AgentArgs {}: &AgentArgs, _: &Printer) -> anyhow::Result<ExitCode> {
    let interrupted = interrupt::listen().context("listening for signals")?;
    block_on(placement::run_agent(async move { interrupted.notified().await }))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts an agent that outlives this process, and waits until it is one.
pub fn start() -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let log = placement::agent_log()?;
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["place", "agent"]).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let detach = || {
        // SAFETY: no memory is passed. It fails only for a leader of processes, which a child is not.
        unsafe { libc::setsid() };
        Ok(())
    };
    // SAFETY: between fork and exec only that system call is made.
    unsafe { command.pre_exec(detach) };
    let mut agent = command.spawn().context("cannot start the agent")?;
    let begun = Instant::now();
    while placement::agent()? != Some(agent.id() as i32) {
        if let Some(status) = agent.try_wait()? {
            bail!("the agent ended ({status}): {}", fs::read_to_string(&log).unwrap_or_default().trim());
        }
        if begun.elapsed() > PATIENCE {
            bail!("the agent (process {}) has not begun", agent.id());
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}
