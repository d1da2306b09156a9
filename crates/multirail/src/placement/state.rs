//! What is changed on this host, written to a file before it is changed, so that it can be undone whatever crashes.
//!
//! One file a network namespace, named by the namespace's cookie.

use super::ports::PortInfo;
use super::settings::Setting;
use super::{Error, Policy, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const DIR: &str = "/run/multirail";
const BPFFS: &str = "/sys/fs/bpf";
/// Raised when older files cannot be read any more.
const VERSION: u32 = 1;

/// Everything that is needed to undo, and to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) version: u32,
    /// Of this boot: what an earlier one changed is gone.
    pub(super) boot_id: String,
    /// Tells one `up` from the next.
    pub(super) id: String,
    pub(super) since: String,
    pub(super) ports: Vec<PortInfo>,
    pub(super) policy: Policy,
    pub(super) threshold_bytes: u32,
    pub(super) peers: PeersFrom,
    pub(super) settings: Vec<Setting>,
    /// The mount namespace in which the file system of pinned objects was mounted by us.
    pub(super) mounted_in: Option<String>,
    /// Whether the first port had no hook.
    pub(super) clsact_added: bool,
}

/// Where the other hosts' ports are known from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeersFrom {
    /// From a file.
    File(PathBuf),
    /// From the hosts themselves, which share the token in this file.
    Exchange {
        /// The token's file.
        token_file: PathBuf,
    },
}

/// Names of this network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    cookie: u64,
}

impl Place {
    /// Of the calling thread.
    pub(super) fn here() -> Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)
            .map_err(Error::io("opening a socket"))?;
        let mut cookie = 0_u64;
        let mut length = size_of::<u64>() as libc::socklen_t;
        // SAFETY: both pointers are valid for the length that is said.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        if done < 0 {
            return Err(Error::io("asking for the network namespace's cookie (Linux 5.14 or later is needed)")(
                io::Error::last_os_error(),
            ));
        }
        Ok(Self { cookie })
    }

    pub(super) fn state_file(self) -> PathBuf {
        PathBuf::from(format!("{DIR}/place-{}.json", self.cookie))
    }

    /// Held by whoever changes something.
    pub(super) fn lock_file(self) -> PathBuf {
        PathBuf::from(format!("{DIR}/place-{}.lock", self.cookie))
    }

    /// Held by the agent.
    pub(super) fn agent_file(self) -> PathBuf {
        PathBuf::from(format!("{DIR}/place-{}.agent", self.cookie))
    }

    /// What the agent counts.
    pub(super) fn counts_file(self) -> PathBuf {
        PathBuf::from(format!("{DIR}/place-{}.exchange.json", self.cookie))
    }

    fn log_file(self) -> PathBuf {
        PathBuf::from(format!("{DIR}/place-{}.log", self.cookie))
    }

    /// Where objects are pinned.
    pub(super) fn pins(self) -> PathBuf {
        pins_root().join(self.cookie.to_string())
    }
}

/// Where the agent's words should go; `down` removes it.
pub fn agent_log() -> Result<PathBuf> {
    Ok(Place::here()?.log_file())
}

/// Below it, a directory a network namespace.
pub(super) fn pins_root() -> PathBuf {
    PathBuf::from(BPFFS).join("multirail-place")
}

/// Where the file system of pinned objects belongs.
pub(super) fn bpffs() -> PathBuf {
    PathBuf::from(BPFFS)
}

/// One `up` or `down` at a time in a network namespace: waits for the other.
pub(super) fn lock(place: Place) -> Result<File> {
    loop {
        let (path, file) = open_lock(place)?;
        file.lock().map_err(Error::io(format!("locking {}", path.display())))?;
        // Whoever had it before may have removed it at their end.
        let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        if let (Ok(ours), Ok(there)) = (file.metadata(), fs::metadata(&path))
            && same(&ours, &there)
        {
            return Ok(file);
        }
    }
}

/// The same without waiting; None while somebody has it.
pub(super) fn try_lock(place: Place) -> Result<Option<File>> {
    let (_, file) = open_lock(place)?;
    Ok(file.try_lock().is_ok().then_some(file))
}

fn open_lock(place: Place) -> Result<(PathBuf, File)> {
    fs::create_dir_all(DIR).map_err(Error::io(format!("making {DIR}, where placement keeps what it changed")))?;
    let path = place.lock_file();
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(Error::io(format!("opening {}", path.display())))?;
    Ok((path, file))
}

impl State {
    pub(super) fn new(ports: Vec<PortInfo>, policy: Policy, threshold_bytes: u32, peers: PeersFrom) -> Result<Self> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|e| Error::io("asking for random bytes")(io::Error::other(e)))?;
        Ok(Self {
            version: VERSION,
            boot_id: boot_id()?,
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            since: since(),
            ports,
            policy,
            threshold_bytes,
            peers,
            settings: Vec::new(),
            mounted_in: None,
            clsact_added: false,
        })
    }

    /// What was written last in this boot; None if there is nothing to undo.
    pub(super) fn load(place: Place) -> Result<Option<Self>> {
        let path = place.state_file();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("reading {}", path.display()))(error)),
        };
        let state: State =
            serde_json::from_slice(&text).map_err(|e| Error::io(format!("{}", path.display()))(io::Error::other(e)))?;
        Ok(Some(state).filter(|state| boot_id().is_ok_and(|boot| boot == state.boot_id)))
    }

    /// Written whole or not at all.
    pub(super) fn save(&self, place: Place) -> Result<()> {
        let path = place.state_file();
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
    Ok(fs::read_to_string(path).map_err(Error::io(path))?.trim().to_owned())
}

/// For people: UTC, to the second.
fn since() -> String {
    // SAFETY: gmtime_r writes to the struct that it is given, which outlives the call.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const now, &raw mut parts);
        let (year, month) = (parts.tm_year + 1900, parts.tm_mon + 1);
        format!(
            "{year:04}-{month:02}-{:02} {:02}:{:02}:{:02} UTC",
            parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec
        )
    }
}

/// Forgets everything: the last step of undoing.
pub(super) fn forget(place: Place) -> Result<()> {
    let files = [place.state_file(), place.counts_file(), place.agent_file(), place.log_file(), place.lock_file()];
    let parts = [place.state_file(), place.counts_file()].map(|path| path.with_extension("part"));
    for path in files.into_iter().chain(parts) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", path.display()))(error));
            }
            _ => {}
        }
    }
    // Only if it is empty: other namespaces have theirs.
    let _ = fs::remove_dir(DIR);
    Ok(())
}
