//! `multirail run`.

mod cgroup;

use super::{SessionArgs, with_port};
use crate::printer::Printer;
use anyhow::Context;
use multirail::forward::run::{Outcome, Supervisor, install};
use multirail::forward::{Peers, Via};
use multirail::server;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use tokio::signal::unix::{SignalKind, signal};

/// Run a program whose TCP connections to other multirail hosts use all rails
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    multirail run --token-file token -- iperf3 -c storage1\n  \
    multirail run --peers storage1 -- rsync -a results rsync://storage1/data/\n  \
    sudo multirail run --peers storage1 --cgroup /sys/fs/cgroup/multirail.slice\n\n\
    Connections to hosts that run `multirail serve --allow-forward` go through a session with that host, all others\n\
    are untouched. It needs no root. The connections of the program's children are taken over as well.\n\
    With --cgroup, it takes over the connections of programs that run already, until it gets a signal. This needs root.")]
pub struct RunArgs {
    /// The servers, separated by commas [default: each host that the program connects to is asked
    /// once on port 7717]
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',')]
    peers: Vec<String>,
    /// Forward every connection to a server's host, also where only one network leads there, and let it
    /// fail if it cannot be forwarded, instead of leaving it as it is
    #[arg(long)]
    require: bool,
    /// Take over the connections of all processes in this cgroup instead of those of a program; needs
    /// root
    #[arg(long, value_name = "DIR", requires = "peers", conflicts_with_all = ["command", "require"])]
    cgroup: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArgs,
    /// The program and its arguments
    #[arg(required_unless_present = "cgroup", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(args: RunArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let config = args.session.config()?;
    let peers: Vec<String> = args.peers.iter().map(|host| with_port(host, server::DEFAULT_PORT)).collect();
    if let Some(cgroup) = &args.cgroup {
        return cgroup::run(cgroup, peers.into_iter().map(|host| Via::new(host, config.clone())).collect(), printer);
    }
    let name = args.command[0].to_string_lossy().into_owned();
    refuse_setuid(&args.command[0])?;
    super::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    let code = runtime.block_on(async {
        let peers = match peers.as_slice() {
            [] => Peers::probing(config),
            hosts => Peers::named(config, hosts).await?,
        };
        let mut command = Command::new(&args.command[0]);
        command.args(&args.command[1..]);
        let installed = install(&mut command)?;
        // Terminals send these to the whole group, and the program decides what they mean.
        let (mut interrupts, mut quits) = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
        let (mut terms, mut hangups) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let mut ended = signal(SignalKind::child())?;
        become_subreaper()?;
        let mut child = command.spawn().map_err(|error| explained(error, &name))?;
        drop(command);
        let pid = child.id() as libc::pid_t;
        let supervisor = Supervisor::new(installed, peers, args.require, tell(*printer))?;
        let mut supervised = tokio::spawn(supervisor.run());
        let mut is_over = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let passed_on = tokio::select! {
                _ = ended.recv() => {
                    reap_orphans(Some(Pid::from_raw(pid)));
                    continue;
                }
                _ = interrupts.recv() => continue,
                _ = quits.recv() => continue,
                result = &mut supervised, if !is_over => {
                    is_over = true;
                    if let Err(error) = result.context("the supervisor").and_then(|ended| Ok(ended?)) {
                        printer.note(format!("warning: further connections of {name} fail: {error:#}"));
                    }
                    continue;
                }
                _ = terms.recv() => libc::SIGTERM,
                _ = hangups.recv() => libc::SIGHUP,
            };
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(pid, passed_on) };
        };
        // Children of the program may go on.
        while !is_over {
            reap_orphans(None);
            tokio::select! {
                _ = ended.recv() => {}
                _ = interrupts.recv() => {}
                _ = &mut supervised => is_over = true,
                _ = terms.recv() => break,
                _ = hangups.recv() => break,
            }
        }
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        anyhow::Ok(code as u8)
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}

/// Tells the user of connections that are not forwarded, once for each host.
fn tell(printer: Printer) -> impl Fn(Outcome<'_>) + Send + Sync {
    let told: Mutex<HashSet<IpAddr>> = Mutex::default();
    let tell_once = move |host: IpAddr, what: String| {
        if told.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(host) {
            printer.note(format!("multirail: connections to {host} {what}"));
        }
    };
    move |outcome| match outcome {
        Outcome::Plain { target, host, error } => {
            tell_once(target.ip(), format!("use one network: {host}: {error}"));
        }
        Outcome::OnePath { target } => {
            tell_once(
                target.ip(),
                "go out as they are, since one network leads there (--require forwards them)".into(),
            );
        }
        Outcome::Forwarded { target } => tracing::info!(%target, "forwarded"),
        _ => {}
    }
}

/// Refuses a program that would gain privileges, which the supervision prevents.
fn refuse_setuid(program: &std::ffi::OsStr) -> anyhow::Result<()> {
    let path = PathBuf::from(program);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates: Box<dyn Iterator<Item = PathBuf>> = match path.components().count() {
        1 => Box::new(std::env::split_paths(&search).map(|folder| folder.join(&path))),
        _ => Box::new(std::iter::once(path.clone())),
    };
    let Some(metadata) = candidates.find_map(|file| file.metadata().ok().filter(std::fs::Metadata::is_file)) else {
        return Ok(());
    };
    // SAFETY: geteuid has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let gains = metadata.permissions().mode() & 0o6000 != 0;
    anyhow::ensure!(
        is_root || !gains,
        "{} runs with the rights of its owner (setuid or setgid), and a supervised program cannot gain rights; run \
         multirail itself with these rights",
        path.display()
    );
    Ok(())
}

fn explained(error: std::io::Error, name: &str) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            anyhow::anyhow!("{name} is already supervised by seccomp, for example by another `multirail run`")
        }
        Some(libc::EINVAL | libc::ENOSYS) => {
            anyhow::anyhow!("this kernel has no seccomp user notification (Linux 5.6)")
        }
        _ => anyhow::Error::from(error).context(format!("cannot start {name}")),
    }
}

/// Lets orphaned children of the program become children of this process: kernels with Yama allow a
/// process to look into its descendants only.
fn become_subreaper() -> std::io::Result<()> {
    // SAFETY: the call has no memory arguments.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Removes children of the program that have ended and whose parents have not waited for them, but not
/// `program` itself.
fn reap_orphans(program: Option<Pid>) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, look)
        && let Some(ended) = status.pid().filter(|ended| Some(*ended) != program)
    {
        let _ = waitpid(ended, Some(WaitPidFlag::WNOHANG));
    }
}
