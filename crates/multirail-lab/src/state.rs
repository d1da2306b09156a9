//! What other processes must know of a lab that is up: a file in /run for each lab.
//!
//! A file, and not the kernel, because the kernel does not keep the order of hosts, the wish behind a link that is down,
//! or who made a lab. It is written before the first namespace and removed after the last, so a crash at any moment
//! leaves either nothing or something that [`crate::Lab::take_down`] finds. /run goes with a reboot, as namespaces do.

use crate::cables::PortLink;
use crate::error::{Error, Result};
use crate::lab::LinkState;
use crate::topology::Topology;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const STATE_DIR: &str = "/run/multirail-lab";

/// A lab, as it is now: rates as they were last set, the links' states beside the topology.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) topology: Topology,
    /// By rail.
    pub(crate) links: Vec<LinkState>,
    /// Of ports that are not up.
    #[serde(default)]
    pub(crate) port_links: Vec<PortLink>,
    /// The process that takes the lab down when it ends. None: it stays.
    pub(crate) owner: Option<Process>,
    /// By what the lab's WANs are made.
    #[serde(default)]
    pub(crate) wan_by: WanBy,
    /// The process that carries the packets of the WANs.
    #[serde(default)]
    pub(crate) relay: Option<Process>,
}

/// By what WANs are made: a property of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WanBy {
    /// A process of ours, between TAP devices.
    #[default]
    Relay,
    /// The kernel's own, at the ports of veth pairs.
    Netem,
}

/// A process. The start time tells it from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: u32,
    start_ticks: u64,
}

impl Process {
    pub(crate) fn this_process() -> Self {
        Self::of(std::process::id())
    }

    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, start_ticks: start_ticks(pid).unwrap_or(0) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// The 22nd field of /proc/PID/stat. The second, the command, may hold spaces and ends with the last parenthesis.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_command) = stat.rsplit_once(')')?;
    let mut fields = after_command.split_whitespace();
    // One that has ended and is not yet buried does nothing any more.
    (fields.next()? != "Z").then(|| fields.nth(18)?.parse().ok())?
}

/// Held while labs are made, changed or taken down, by whatever process.
pub(crate) struct Lock(#[allow(dead_code, reason = "dropping it unlocks")] Flock<File>);

pub(crate) fn lock() -> Result<Lock> {
    let path = Path::new(STATE_DIR).join("lock");
    std::fs::create_dir_all(STATE_DIR).map_err(|e| failed(Path::new(STATE_DIR), e))?;
    let file = File::options().create(true).append(true).open(&path).map_err(|e| failed(&path, e))?;
    match Flock::lock(file, FlockArg::LockExclusive) {
        Ok(lock) => Ok(Lock(lock)),
        Err((_, errno)) => Err(failed(&path, errno.into())),
    }
}

/// The names of the labs that have a state.
pub(crate) fn names() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(STATE_DIR) else { return Vec::new() };
    let files = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = files.filter_map(|file| Some(file.strip_suffix(".json")?.to_owned())).collect();
    names.sort();
    names
}

/// The state of a lab; None if there is none.
pub(crate) fn read(name: &str) -> Result<Option<State>> {
    let path = path(name);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(&path, e)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|e| failed(&path, e.into()))
}

/// Writes beside the old state and renames, so that a reader never sees half of it.
pub(crate) fn write(name: &str, state: &State) -> Result<()> {
    let path = path(name);
    let beside = path.with_extension("json.new");
    let text = serde_json::to_vec_pretty(state).map_err(|e| failed(&path, e.into()))?;
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path)).map_err(|e| failed(&path, e))
}

pub(crate) fn remove(name: &str) -> Result<()> {
    let path = path(name);
    let _ = std::fs::remove_file(path.with_extension("json.new"));
    let _ = std::fs::remove_file(relay_path(name));
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(&path, e)),
        _ => Ok(()),
    }
}

/// What a lab's relay shares with others.
pub(crate) fn relay_path(name: &str) -> PathBuf {
    Path::new(STATE_DIR).join(format!("{name}.relay"))
}

fn path(name: &str) -> PathBuf {
    Path::new(STATE_DIR).join(format!("{name}.json"))
}

pub(crate) fn failed(path: &Path, reason: io::Error) -> Error {
    if reason.kind() == io::ErrorKind::PermissionDenied {
        return Error::NotRoot;
    }
    Error::State { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_one_of_its_number_is_not() {
        let me = Process::this_process();
        assert!(me.is_alive());
        assert!(!Process { start_ticks: me.start_ticks - 1, ..me }.is_alive());
    }
}
