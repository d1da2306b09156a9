//! What a filter knows of its copy and of its work.

use crate::edge::Buffer;
use multirail_net::budget::MemoryClaim;
use std::fmt;
use std::sync::Arc;

/// A unit of work of DataCutter: one query that flows through all filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitOfWork {
    /// 1 for the first unit of the group.
    pub number: u32,
    /// The query. Only the filters interpret it.
    pub query: Vec<u8>,
}

/// A unit of work in the queues of the copies, with the memory that it uses until the last copy has
/// ended it.
#[derive(Debug, Clone)]
pub(crate) struct QueuedUnit(Arc<(UnitOfWork, Option<MemoryClaim>)>);

impl QueuedUnit {
    /// A unit whose memory is claimed by `claim`.
    pub(crate) fn new(unit: UnitOfWork, claim: Option<MemoryClaim>) -> Self {
        Self(Arc::new((unit, claim)))
    }

    pub(crate) fn get(&self) -> &UnitOfWork {
        &self.0.0
    }
}

/// Which copy of which filter this is, and the group's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyInfo {
    /// The filter's name.
    pub filter: String,
    /// The copy's number, from 0.
    pub copy: usize,
    /// The number of transparent copies of the filter.
    pub copies: usize,
    /// The name of the copy's host.
    pub host: String,
    /// The size in bytes of the chunks into which a source cuts its data.
    pub chunk_bytes: u64,
    /// The largest buffer in bytes that may be written.
    pub limit_bytes: u64,
    /// The number of output streams.
    pub outputs: usize,
}

/// A buffer that a filter has read.
#[derive(Debug)]
pub struct Received {
    /// The input stream, from 0, in the order in which the streams were added to the group.
    pub stream: usize,
    /// The tag that the writing filter gave the buffer.
    pub tag: u64,
    /// The bytes.
    pub body: Buffer,
}

/// What a copy that reads without blocking for long has found.
#[derive(Debug)]
pub(crate) enum Next {
    /// A buffer.
    Buffer(Received),
    /// All inputs have ended this unit of work.
    End,
    /// Nothing yet.
    Nothing,
}

impl fmt::Display for CopyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "copy {} of filter {:?} on host {}", self.copy, self.filter, self.host)
    }
}
