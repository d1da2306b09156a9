//! The names of a network namespace: its files, and its locks.

use crate::kernel::bpffs;
use crate::{Error, Result};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory of all files of placement.
pub(crate) const RUN_DIR: &str = "/run/multirail";

/// Opens a file that only its owner can open, and makes it if it does not exist. Another user could
/// lock the file otherwise, and keep placement waiting.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    // An earlier version made it readable.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// A network namespace, identified by the kernel's cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Netns {
    cookie: u64,
}

impl Netns {
    /// The namespace of the calling thread.
    pub(crate) fn current() -> Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)
            .map_err(Error::io("opening a socket"))?;
        let mut cookie = 0_u64;
        let mut length = size_of::<u64>() as libc::socklen_t;
        // SAFETY: both pointers are valid, and `length` is the size of the cookie.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            let what = "reading the network namespace's cookie (Linux 5.14 or later is needed)";
            return Err(Error::io(what)(io::Error::last_os_error()));
        }
        Ok(Self { cookie })
    }

    fn file(self, suffix: &str) -> PathBuf {
        PathBuf::from(format!("{RUN_DIR}/place-{}.{suffix}", self.cookie))
    }

    /// The file of the [`SavedState`](crate::saved_state::SavedState).
    pub(crate) fn state_file(self) -> PathBuf {
        self.file("json")
    }

    /// The file that the agent locks.
    pub(crate) fn agent_file(self) -> PathBuf {
        self.file("agent")
    }

    /// The file to which the agent writes its counters.
    pub(crate) fn counts_file(self) -> PathBuf {
        self.file("exchange.json")
    }

    /// The file to which the agent's output goes.
    pub(crate) fn log_file(self) -> PathBuf {
        self.file("log")
    }

    fn lock_file(self) -> PathBuf {
        self.file("lock")
    }

    /// The directory of pinned BPF objects.
    pub(crate) fn pin_dir(self) -> PathBuf {
        bpffs::pin_root().join(self.cookie.to_string())
    }

    /// Locks placement of this namespace; waits while another process has the lock.
    pub(crate) fn lock(self) -> Result<File> {
        loop {
            let (path, file) = self.open_lock()?;
            file.lock().map_err(Error::io(format!("locking {}", path.display())))?;
            // The previous owner may have removed the file meanwhile.
            let is_same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            if let (Ok(ours), Ok(there)) = (file.metadata(), fs::metadata(&path))
                && is_same(&ours, &there)
            {
                return Ok(file);
            }
        }
    }

    /// Locks placement of this namespace; returns none if another process has the lock.
    pub(crate) fn try_lock(self) -> Result<Option<File>> {
        let (_, file) = self.open_lock()?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    fn open_lock(self) -> Result<(PathBuf, File)> {
        let what = format!("making {RUN_DIR}, where placement records what it changes");
        fs::create_dir_all(RUN_DIR).map_err(Error::io(what))?;
        let path = self.lock_file();
        let file = private_file(&path);
        let file = file.map_err(Error::io(format!("opening {}", path.display())))?;
        Ok((path, file))
    }

    /// Removes all files of the namespace. This is the last step of undoing.
    pub(crate) fn remove_files(self) -> Result<()> {
        let files = [self.state_file(), self.counts_file(), self.agent_file(), self.log_file(), self.lock_file()];
        let parts = [self.state_file(), self.counts_file()].map(|path| path.with_extension("part"));
        for path in files.into_iter().chain(parts) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("removing {}", path.display()))(error));
                }
                _ => {}
            }
        }
        // This fails while other namespaces have files there.
        let _ = fs::remove_dir(RUN_DIR);
        Ok(())
    }
}

/// The file to which the caller of [`up`](crate::up) should send the agent's output.
/// [`down`](crate::down) removes it.
///
/// # Errors
/// If the kernel has no cookies of network namespaces (before Linux 5.14).
pub fn agent_log() -> Result<PathBuf> {
    Ok(Netns::current()?.log_file())
}
