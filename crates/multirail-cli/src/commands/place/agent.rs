//! `multirail place agent`, and how `up` starts it.

use crate::printer::Printer;
use anyhow::{Context, bail};
use multirail::placement;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Follow the links of this host and other hosts while placement is up; `up` starts it, unless
/// --no-agent is given
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  multirail place up --ports eth0,eth1 --token-file token --no-agent\n  multirail place agent"
)]
pub struct AgentArgs {}

pub fn run(AgentArgs {}: &AgentArgs, _: &Printer) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        // A thread for signals would keep the capabilities that the agent gives up.
        let listening = |kind| signal(kind).context("listening for signals");
        let mut signals = [
            listening(SignalKind::terminate())?,
            listening(SignalKind::interrupt())?,
            listening(SignalKind::hangup())?,
        ];
        placement::run_agent(async move {
            let [terminate, interrupt, hang_up] = &mut signals;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hang_up.recv() => {}
            }
        })
        .await?;
        anyhow::Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Starts an agent that outlives this process, and waits until it runs.
pub fn start() -> anyhow::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let log = placement::agent_log()?;
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["place", "agent"]).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let detach = || {
        // SAFETY: setsid takes no pointers. It fails only for a process group leader, which a child
        // is not.
        unsafe { libc::setsid() };
        Ok(())
    };
    // SAFETY: setsid, the only call between fork and exec, is async-signal-safe.
    unsafe { command.pre_exec(detach) };
    let mut agent = command.spawn().context("cannot start the agent")?;
    let started = Instant::now();
    while placement::agent_pid()? != Some(agent.id() as i32) {
        if let Some(status) = agent.try_wait()? {
            bail!("the agent ended ({status}): {}", fs::read_to_string(&log).unwrap_or_default().trim());
        }
        if started.elapsed() > TIMEOUT {
            bail!("the agent (process {}) did not start in time", agent.id());
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}
