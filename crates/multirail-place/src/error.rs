//! Errors of placement.

use multirail_proto::placement::hosts::HostsError;
use std::io;
use std::path::PathBuf;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why placement cannot be started, inspected or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process lacks capabilities; the text names them.
    #[error("this process lacks {0}")]
    Rights(String),
    /// The kernel has no type information of itself.
    #[error("this kernel has no type information; it must be built with CONFIG_DEBUG_INFO_BTF")]
    Btf(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kernel refused the BPF program.
    #[error("the kernel refused the program; Linux 5.17 or later is needed")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A port cannot be used.
    #[error("port {port}: {what}")]
    Port {
        /// The port's name.
        port: String,
        /// The reason, and what to do.
        what: &'static str,
    },
    /// The number of ports is out of range, or a port is named twice.
    #[error("ports: {0}")]
    Ports(String),
    /// The peers file cannot be read.
    #[error("peers file {path}")]
    PeersFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        reason: io::Error,
    },
    /// The peers file is invalid.
    #[error("peers file {path}")]
    Peers {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong with it.
        #[source]
        reason: HostsError,
    },
    /// Placement is already up in this network namespace, or `up` was interrupted.
    #[error("placement is already up here, or was interrupted")]
    AlreadyUp,
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] multirail_net::Error),
    /// Another agent runs in this network namespace.
    #[error("another agent already runs here")]
    AgentRuns,
    /// Placement is not up in this network namespace.
    #[error("placement is not up in this network namespace")]
    NotUp,
    /// The first port has a queueing discipline without an egress hook.
    #[error(
        "port {0} has an `ingress` queueing discipline, which has no egress hook; replace it by `clsact`, which has both"
    )]
    IngressQdisc(String),
    /// The loaded program is of another version of multirail; the text says in what it differs.
    #[error("the loaded program is of another version of multirail ({0})")]
    OtherVersion(String),
    /// A system call failed.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// The cause.
        #[source]
        reason: io::Error,
    },
}

impl Error {
    /// For `map_err`: turns an I/O error into one that says what was being done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |reason| Error::Io { what, reason }
    }

    /// For `map_err`: the kernel refused the program.
    pub(crate) fn refused(reason: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Refused(Box::new(reason))
    }

    /// For `map_err`: an operation on a map failed.
    pub(crate) fn map(error: aya::maps::MapError) -> Error {
        match error {
            aya::maps::MapError::InvalidValueSize { .. } | aya::maps::MapError::InvalidKeySize { .. } => {
                Error::OtherVersion(error.to_string())
            }
            other => Error::io("accessing a map of the program")(io::Error::other(other)),
        }
    }

    /// The loaded program lacks a map or a function.
    pub(crate) fn missing(name: &str) -> Error {
        Error::OtherVersion(format!("it has no `{name}`"))
    }
}
