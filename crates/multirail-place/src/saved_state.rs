//! The record of what placement changes on this host. It is written before anything is changed, so
//! that the changes can be undone after any crash.

use crate::kernel::ports::PortInfo;
use crate::kernel::sysctl::Setting;
use crate::netns::Netns;
use crate::{Error, Policy, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the file's format.
const VERSION: u32 = 2;

/// All that is needed to undo `up`, and to run the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    pub(crate) version: u32,
    /// The kernel's id of this boot. A reboot undoes all changes.
    pub(crate) boot_id: String,
    /// Identifies this `up`.
    pub(crate) id: String,
    /// When placement began, in seconds since 1970.
    pub(crate) since_unix_s: u64,
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) policy: Policy,
    pub(crate) threshold_bytes: u32,
    pub(crate) peers: PeersFrom,
    pub(crate) settings: Vec<Setting>,
    /// The mount namespace in which `up` mounted the BPF file system, if it did.
    pub(crate) mounted_in: Option<String>,
    /// Whether `up` added the `clsact` hook.
    pub(crate) clsact_added: bool,
}

/// How the ports of the other hosts are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeersFrom {
    /// From a peers file (`multirail_proto::placement::hosts`).
    File(PathBuf),
    /// From hellos, which the hosts exchange.
    Exchange {
        /// The file of the token that all hosts share.
        token_file: PathBuf,
    },
}

impl SavedState {
    pub(crate) fn new(ports: Vec<PortInfo>, policy: Policy, threshold_bytes: u32, peers: PeersFrom) -> Result<Self> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|e| Error::io("reading random bytes")(io::Error::other(e)))?;
        Ok(Self {
            version: VERSION,
            boot_id: boot_id()?,
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            since_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            ports,
            policy,
            threshold_bytes,
            peers,
            settings: Vec::new(),
            mounted_in: None,
            clsact_added: false,
        })
    }

    /// Reads the record. Returns `None` if there is no record of this boot.
    pub(crate) fn load(netns: Netns) -> Result<Option<Self>> {
        let path = netns.state_file();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("reading {}", path.display()))(error)),
        };
        let state: SavedState = serde_json::from_slice(&text)
            .map_err(|e| Error::io(format!("reading {}", path.display()))(io::Error::other(e)))?;
        Ok(Some(state).filter(|state| boot_id().is_ok_and(|boot| boot == state.boot_id)))
    }

    /// Writes the record atomically.
    pub(crate) fn save(&self, netns: Netns) -> Result<()> {
        let path = netns.state_file();
        let part = path.with_extension("part");
        let write = || -> io::Result<()> {
            let mut file = File::create(&part)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&part, &path)
        };
        write().map_err(Error::io(format!("writing {}", path.display())))
    }
}

fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    Ok(fs::read_to_string(path).map_err(Error::io(format!("reading {path}")))?.trim().to_owned())
}
