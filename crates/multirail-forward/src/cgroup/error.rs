//! Why the connections of a cgroup cannot be taken over.

use std::io;
use std::path::PathBuf;

/// Why the connections of a cgroup cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// The folder cannot be opened.
    #[error("the cgroup {}: {cause}", path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The folder is not a cgroup of version 2.
    #[error("{} is not a cgroup of version 2", path.display())]
    NotACgroup {
        /// The folder.
        path: PathBuf,
    },
    /// This process is in the cgroup, so that its own connections would come back to it.
    #[error("this process is itself in the cgroup {}", path.display())]
    IsOwn {
        /// The folder.
        path: PathBuf,
    },
    /// The kernel has no `SO_NETNS_COOKIE`.
    #[error("this kernel is older than Linux 5.14")]
    OldKernel,
    /// The kernel refuses the program.
    #[error("the kernel refuses the BPF program: {0}")]
    Refused(String),
    /// No socket can be made.
    #[error("a socket of the relay: {0}")]
    Socket(#[from] io::Error),
}
