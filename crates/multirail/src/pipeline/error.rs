//! Why a group cannot start, or a unit of work failed.

use multirail_proto::pipeline::GraphError;

/// What went wrong with a pipeline, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The group makes no sense.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A name that nothing has.
    #[error("{what} {name:?} is unknown; there are: {}", .known.join(", "))]
    Unknown {
        /// A filter, a host, a kind of filter.
        what: &'static str,
        /// As given.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A kind of filter that could be made, and is not.
    #[error("filters of the kind {kind:?} are refused: {why}")]
    Refused {
        /// The kind.
        kind: String,
        /// Why, and what to do.
        why: String,
    },
    /// A filter failed, and with it its unit of work.
    #[error("unit of work {unit}: copy {copy} of filter {filter:?} on host {host} failed: {cause}")]
    Filter {
        /// Which unit of work.
        unit: u32,
        /// The filter.
        filter: String,
        /// Its copy.
        copy: usize,
        /// Where that was.
        host: String,
        /// In the filter's words.
        cause: String,
    },
    /// A host could not begin.
    #[error("host {host} cannot take part: {cause}")]
    Start {
        /// The host.
        host: String,
        /// Why.
        cause: String,
    },
    /// A host is gone.
    #[error("unit of work {unit}: host {host} is gone: {cause}")]
    Host {
        /// The first unit that it did not end.
        unit: u32,
        /// The host.
        host: String,
        /// What was seen of it.
        cause: String,
    },
    /// Nobody knows of this unit.
    #[error("there is no unit of work {0} to wait for")]
    NoUnit(u32),
}

impl PipelineError {
    pub(super) fn start(host: &str, cause: impl ToString) -> Self {
        Self::Start { host: host.to_owned(), cause: cause.to_string() }
    }
}

/// Result of this module's operations.
pub type Result<T, E = PipelineError> = std::result::Result<T, E>;
