//! The state file of a lab, by which other processes find and change it.
//!
//! The kernel does not keep the order of hosts, the desired state of a link that is down, or the
//! process that owns a lab; a file in /run does. It is written before the first namespace is
//! created and removed after the last one. After a crash at any moment there is thus either
//! nothing or something that [`crate::Lab::take_down`] finds. /run is empty after a reboot, as are
//! the namespaces. See docs/decisions/0006.

use crate::error::{Error, Result};
use crate::kernel::process::ProcessIdentity;
use crate::plan::lab_plan::{LabPlan, WanEmulation};
use crate::spec::topology::Topology;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const STATE_DIR: &str = "/run/multirail-lab";

/// Whether a rail or a port carries packets, and if not, whether its hosts can see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Packets pass.
    Up,
    /// The hosts' ports have no carrier. Programs get errors at once.
    Down,
    /// Every packet is lost on the way, and the carrier stays, as when a switch further away fails.
    Cut,
}

/// The state of a port that is not up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortLinkState {
    rail: usize,
    host: usize,
    link: LinkState,
}

/// The current state of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LabState {
    /// The topology with the current rates and WAN properties.
    pub(crate) topology: Topology,
    /// The state of each rail.
    pub(crate) links: Vec<LinkState>,
    /// The state of each port that is not up.
    #[serde(default)]
    port_links: Vec<PortLinkState>,
    /// The process that takes the lab down when it ends. `None` if the lab stays.
    pub(crate) owner: Option<ProcessIdentity>,
    /// How the lab emulates WANs.
    #[serde(default)]
    pub(crate) wan_by: WanEmulation,
    /// The process of the relay.
    #[serde(default)]
    pub(crate) relay: Option<ProcessIdentity>,
}

impl LabState {
    /// The state of a lab that this process is about to create.
    pub(crate) fn new(topology: Topology, wan_by: WanEmulation) -> Self {
        Self {
            links: vec![LinkState::Up; topology.rails.len()],
            topology,
            port_links: Vec::new(),
            owner: Some(ProcessIdentity::this_process()),
            wan_by,
            relay: None,
        }
    }

    pub(crate) fn plan<'a>(&'a self, lab: &'a str) -> LabPlan<'a> {
        LabPlan { lab, topology: &self.topology, wan_by: self.wan_by }
    }

    pub(crate) fn port_link(&self, host: usize, rail: usize) -> LinkState {
        let port = self.port_links.iter().find(|port| (port.host, port.rail) == (host, rail));
        port.map_or(LinkState::Up, |port| port.link)
    }

    pub(crate) fn set_port_link(&mut self, host: usize, rail: usize, link: LinkState) {
        self.port_links.retain(|port| (port.host, port.rail) != (host, rail));
        if link != LinkState::Up {
            self.port_links.push(PortLinkState { rail, host, link });
        }
    }
}

/// Excludes all other processes that create, change or take down labs.
pub(crate) struct LabLock(#[allow(dead_code, reason = "dropping it unlocks")] Flock<File>);

/// Waits for the lock.
pub(crate) fn lock() -> Result<LabLock> {
    let path = Path::new(STATE_DIR).join("lock");
    std::fs::create_dir_all(STATE_DIR).map_err(|e| failed(Path::new(STATE_DIR), e))?;
    let file = File::options().create(true).append(true).open(&path).map_err(|e| failed(&path, e))?;
    match Flock::lock(file, FlockArg::LockExclusive) {
        Ok(lock) => Ok(LabLock(lock)),
        Err((_, errno)) => Err(failed(&path, errno.into())),
    }
}

/// The names of the labs that have a state file, in alphabetical order.
pub(crate) fn names() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(STATE_DIR) else { return Vec::new() };
    let files = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = files.filter_map(|file| Some(file.strip_suffix(".json")?.to_owned())).collect();
    names.sort();
    names
}

/// Reads the state of a lab. Returns `None` if there is none.
pub(crate) fn read(name: &str) -> Result<Option<LabState>> {
    let path = state_path(name);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(&path, e)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|e| failed(&path, e.into()))
}

/// Writes the state of a lab to a new file and renames it, so that no reader sees half of it.
pub(crate) fn write(name: &str, state: &LabState) -> Result<()> {
    let path = state_path(name);
    let new_path = path.with_extension("json.new");
    let text = serde_json::to_vec_pretty(state).map_err(|e| failed(&path, e.into()))?;
    std::fs::write(&new_path, text).and_then(|()| std::fs::rename(&new_path, &path)).map_err(|e| failed(&path, e))
}

/// Removes the files of a lab. Missing files are no error.
pub(crate) fn remove(name: &str) -> Result<()> {
    let path = state_path(name);
    let _ = std::fs::remove_file(path.with_extension("json.new"));
    let _ = std::fs::remove_file(relay_path(name));
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(&path, e)),
        _ => Ok(()),
    }
}

/// The file of the relay's shared memory.
pub(crate) fn relay_path(name: &str) -> PathBuf {
    Path::new(STATE_DIR).join(format!("{name}.relay"))
}

fn state_path(name: &str) -> PathBuf {
    Path::new(STATE_DIR).join(format!("{name}.json"))
}

/// The error of an operation on one of these files.
pub(crate) fn failed(path: &Path, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return Error::NotRoot;
    }
    Error::State { path: path.to_owned(), source }
}
