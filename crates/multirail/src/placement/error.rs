//! Why placement does not begin, or end.

use multirail_proto::placement::hosts::HostsError;
use std::io;
use std::path::PathBuf;

/// Result of this module's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why placement cannot be begun, looked at or ended. Text is lower case; the first half says who caused it, the second what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This process may not do it.
    #[error("this process lacks {0}; run it as root, or with these rights (docs/guide/placement.md)")]
    Rights(String),
    /// The kernel does not describe itself.
    #[error("this kernel has no type information ({0}); it must be built with CONFIG_DEBUG_INFO_BTF")]
    Btf(String),
    /// The kernel takes no such program.
    #[error("the kernel refused the program: {0}; Linux 5.17 or later is needed")]
    Refused(String),
    /// A port cannot be used.
    #[error("port {port}: {what}")]
    Port {
        /// Its name.
        port: String,
        /// Why, and what to do.
        what: &'static str,
    },
    /// The list of ports is not one.
    #[error("--ports: {0}")]
    Ports(String),
    /// The file of hosts cannot be read.
    #[error("peers file {path}: {reason}")]
    PeersFile {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// The file of hosts says what cannot be.
    #[error("peers file {path}, {reason}")]
    Peers {
        /// As it was given.
        path: PathBuf,
        /// Which line, and why.
        reason: HostsError,
    },
    /// It is up already.
    #[error("placement is up here already, or was cut short (since {since}); `multirail place down` ends it")]
    AlreadyUp {
        /// The file that says so.
        since: String,
    },
    /// The token cannot be read.
    #[error("{0}")]
    Token(String),
    /// There is an agent already.
    #[error("an agent follows links and hosts here already; nothing to do")]
    AgentRuns,
    /// It is not up.
    #[error("placement is not up in this network namespace; `multirail place up` begins it")]
    NotUp,
    /// The port has a hook of the old kind.
    #[error(
        "port {0} has an `ingress` queueing discipline, which leaves no hook for packets that leave; replace it by `clsact`, which has both"
    )]
    IngressQdisc(String),
    /// The maps in the kernel are not this version's.
    #[error("what is loaded is not of this version of multirail ({0}); `multirail place down`, then up again")]
    OtherVersion(String),
    /// A call of the kernel failed.
    #[error("{what}: {reason}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        reason: io::Error,
    },
}

impl Error {
    /// For `map_err`: an I/O error and what was being done.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |reason| Error::Io { what, reason }
    }
}
