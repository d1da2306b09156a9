//! Why a group cannot start, or why a unit of work failed.

use multirail_proto::pipeline::GraphError;

/// An error of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The group is not valid.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A name that is not defined.
    #[error("{what} {name:?} is unknown; there are: {}", .known.join(", "))]
    Unknown {
        /// What the name should stand for: a filter, a host or a kind of filter.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that are defined.
        known: Vec<String>,
    },
    /// A kind of filter that this host knows but does not make.
    #[error("filters of the kind {kind:?} are refused: {why}")]
    Refused {
        /// The kind.
        kind: String,
        /// The reason.
        why: String,
    },
    /// A copy of a filter failed, so its unit of work failed.
    #[error("unit of work {unit}: copy {copy} of filter {filter:?} on host {host} failed: {cause}")]
    Filter {
        /// The number of the unit of work.
        unit: u32,
        /// The filter's name.
        filter: String,
        /// The filter's copy.
        copy: usize,
        /// The name of the copy's host.
        host: String,
        /// The filter's reason.
        cause: String,
    },
    /// A copy of a filter is lost, and other copies cannot continue without it.
    #[error("unit of work {unit}: copy {copy} of filter {filter:?} on host {host} is lost: {cause}")]
    CopyLost {
        /// The number of the unit of work.
        unit: u32,
        /// The filter's name.
        filter: String,
        /// The filter's copy.
        copy: usize,
        /// The name of the copy's host.
        host: String,
        /// How the connection to it ended.
        cause: String,
    },
    /// A host cannot take part in the group.
    #[error("host {host} cannot take part: {cause}")]
    Start {
        /// The host's name.
        host: String,
        /// The reason.
        cause: String,
    },
    /// The connection to a host is lost, and other hosts cannot do its work.
    #[error("unit of work {unit}: host {host} is lost: {cause}")]
    Host {
        /// The number of the unit of work.
        unit: u32,
        /// The host's name.
        host: String,
        /// How the connection ended.
        cause: String,
    },
    /// There is no such unit of work, or its result was reported before.
    #[error("there is no unit of work {0} to wait for")]
    NoUnit(u32),
}

impl PipelineError {
    pub(crate) fn start(host: &str, cause: impl ToString) -> Self {
        Self::Start { host: host.to_owned(), cause: cause.to_string() }
    }
}

/// Result of an operation on a pipeline.
pub(crate) type Result<T, E = PipelineError> = std::result::Result<T, E>;
