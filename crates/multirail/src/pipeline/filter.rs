//! What a filter is, and what it is told.

use super::io::Io;
use multirail_proto::pipeline::Schedule;
use std::any::Any;
use std::fmt;

/// Why a filter gave up, in its own words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One copy of a filter. It lives in a thread of its own, which makes it, and sees one unit of work after the other
/// (paper, section 4.1). After a failure a new one is made for the next unit.
///
/// A closure `FnMut(&mut Io) -> Result<(), Failure>` is a filter without `init` and `finalize`.
pub trait Filter {
    /// Before a unit of work: get what it needs.
    fn init(&mut self, unit: &Unit) -> Result<(), Failure> {
        let _ = unit;
        Ok(())
    }

    /// The work: read from the inputs until [`Io::read`] has no more, write to the outputs. What is not read when this returns is
    /// thrown away.
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure>;

    /// After it: let go of what `init` got.
    fn finalize(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<F: FnMut(&mut Io<'_>) -> Result<(), Failure>> Filter for F {
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        self(io)
    }
}

/// A unit of work: one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// 1 for the group's first, and so on.
    pub number: u32,
    /// What is asked; the filters understand it.
    pub query: Vec<u8>,
}

/// Which copy of which filter this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The filter's name.
    pub filter: String,
    /// This copy's number, from 0.
    pub copy: usize,
    /// How many copies there are.
    pub copies: usize,
    /// The host's name.
    pub host: String,
    /// The group's chunk size: what a source shall cut its data into.
    pub chunk_bytes: u64,
    /// The largest buffer that may be written.
    pub limit_bytes: u64,
    /// How many streams lead out.
    pub outputs: usize,
}

/// How a stream shall work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Which copy gets a buffer; default demand-driven.
    pub schedule: Schedule,
    /// Buffers on the way from a copy to a copy that the receiver has not started on; default 4: enough to hide the way of
    /// an acknowledgement, and little for a slow copy to be late with.
    pub window: u32,
    /// What carries it between hosts; default: the best that both can do.
    pub transport: Option<crate::transport::Transport>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { schedule: Schedule::default(), window: 4, transport: None }
    }
}

/// Why reading or writing cannot go on. A filter passes it on as its own failure.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    #[error("the unit of work was given up")]
    Aborted,
    #[error("copy {copy} of filter {filter:?} on host {host} is gone: {cause}")]
    Gone { filter: String, copy: usize, host: String, cause: String },
    #[error("a host died when it had sent on a part of what it made of a buffer")]
    Partly,
    #[error("a buffer of {bytes} bytes was written, the limit is {limit_bytes}; write smaller ones or raise the limit")]
    TooLarge { bytes: usize, limit_bytes: u64 },
    #[error("there is no output stream {stream}, the filter has {outputs}; numbers begin at 0")]
    NoOutput { stream: usize, outputs: usize },
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    format!("it panicked: {}", text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "copy {} of filter {:?} on host {}", self.copy, self.filter, self.host)
    }
}
