//! `multirail run --cgroup`.

use crate::commands::{raise_file_limit, serve};
use crate::hints::error_with_hint;
use crate::interrupt;
use crate::printer::Printer;
use anyhow::Context;
use multirail::forward::Via;
use multirail::forward::cgroup::{CgroupError, CgroupRelay, ServerState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(serde::Serialize)]
struct Ready {
    cgroup: PathBuf,
}

/// Takes over the connections of a cgroup until a signal comes.
pub fn run(cgroup: &Path, servers: Vec<Via>, printer: &Printer) -> anyhow::Result<ExitCode> {
    raise_file_limit();
    let interrupted = interrupt::listen()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let relay = CgroupRelay::attach(cgroup).map_err(explained)?;
        let is_ready = || {
            let ready = Ready { cgroup: cgroup.to_owned() };
            printer.row(&ready, |r| format!("taking over connections of {}", r.cgroup.display()));
            serve::notify_ready();
        };
        tokio::select! {
            () = relay.run(servers, tell(*printer), is_ready) => {}
            () = interrupted.notified() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn tell(printer: Printer) -> impl Fn(&str, ServerState<'_>) + Send + Sync {
    move |host, state| match state {
        ServerState::Connected => printer.note(format!("multirail: connections to {host} use all networks")),
        ServerState::Unreachable(error) => {
            printer.note(format!("multirail: connections to {host} use one network: {error}"));
        }
        ServerState::Lost => printer.note(format!("multirail: the session with {host} is over; trying again")),
        _ => {}
    }
}

fn explained(error: CgroupError) -> anyhow::Error {
    let hint = match &error {
        CgroupError::Open { .. } | CgroupError::NotACgroup { .. } => {
            "name a folder of the cgroup file system, such as /sys/fs/cgroup/multirail.slice"
        }
        CgroupError::IsOwn { .. } => "start multirail in another cgroup, such as a unit of its own",
        CgroupError::Refused(_) => {
            "this needs root (CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON) and Linux 5.14 with BPF for cgroups"
        }
        _ => return error.into(),
    };
    error_with_hint(error.to_string(), hint)
}
