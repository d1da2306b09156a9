//! What a filter sees of its streams.

use super::copy_runtime::CopyRuntime;
use super::counters::{Activity, add};
use super::failure::{Failure, StreamError};
use super::info::{CopyInfo, Next, Received, UnitOfWork};
use crate::edge::Buffer;
use std::os::fd::RawFd;

/// The streams of a copy, during one unit of work.
#[derive(Debug)]
pub struct Io<'a> {
    runtime: &'a mut CopyRuntime,
    info: &'a CopyInfo,
    unit: &'a UnitOfWork,
}

impl<'a> Io<'a> {
    /// The filter's own code begins to run.
    pub(crate) fn new(runtime: &'a mut CopyRuntime, info: &'a CopyInfo, unit: &'a UnitOfWork) -> Self {
        runtime.counters.switch_to(Activity::Working);
        Self { runtime, info, unit }
    }
}

impl Io<'_> {
    /// The next buffer from any input stream and any copy of its producer, in the order of
    /// arrival; `None` when all of them have ended this unit of work. It blocks until then.
    ///
    /// # Errors
    ///
    /// If the unit of work was aborted, or if a copy is lost that cannot be replaced. The filter
    /// must pass the error on.
    pub fn read(&mut self) -> Result<Option<Received>, Failure> {
        self.runtime.counters.switch_to(Activity::Reading);
        let received = self.runtime.read();
        self.runtime.counters.switch_to(Activity::Working);
        if let Ok(Some(received)) = &received {
            self.count(received);
        }
        Ok(received?)
    }

    /// As [`CopyRuntime::read_or_poll`]. `is_working` means that the filter has a process that
    /// works while this thread sleeps.
    pub(crate) fn read_or_poll(
        &mut self,
        wanted: bool,
        is_working: bool,
        fds: &[(RawFd, bool)],
    ) -> Result<Next, Failure> {
        self.runtime.counters.switch_to(if is_working { Activity::Working } else { Activity::Reading });
        let next = self.runtime.read_or_poll(wanted, fds);
        self.runtime.counters.switch_to(Activity::Working);
        if let Ok(Next::Buffer(received)) = &next {
            self.count(received);
        }
        Ok(next?)
    }

    /// As [`CopyRuntime::is_kept_by_producer`].
    pub(crate) fn is_kept_by_producer(&self) -> bool {
        self.runtime.is_kept_by_producer()
    }

    fn count(&self, received: &Received) {
        add(&self.runtime.counters.buffers_in, 1);
        add(&self.runtime.counters.bytes_in, received.body.len() as u64);
    }

    /// Writes a buffer to an output stream; 0 is the stream that was added to the group first.
    ///
    /// One copy of the consumer gets the buffer, together with `tag`, which only the filters
    /// interpret. The call blocks while every copy has a full window of unacknowledged buffers
    /// ([`StreamOptions::window`](crate::StreamOptions::window)).
    ///
    /// # Errors
    ///
    /// As for [`Io::read`]; also if the stream does not exist or the buffer exceeds the group's
    /// limit. The filter must pass the error on.
    pub fn write(&mut self, stream: usize, tag: u64, body: impl Into<Buffer>) -> Result<(), Failure> {
        let body = body.into();
        if body.len() as u64 > self.info.limit_bytes {
            return Err(StreamError::TooLarge { bytes: body.len(), limit_bytes: self.info.limit_bytes }.into());
        }
        self.runtime.counters.switch_to(Activity::Writing);
        add(&self.runtime.counters.buffers_out, 1);
        add(&self.runtime.counters.bytes_out, body.len() as u64);
        let written = self.runtime.write(stream, tag, body);
        self.runtime.counters.switch_to(Activity::Working);
        Ok(written?)
    }

    /// An empty buffer with room for `capacity_bytes`, whose memory is reused.
    pub fn buffer(&self, capacity_bytes: usize) -> Buffer {
        self.runtime.pool.buffer(capacity_bytes)
    }

    /// A buffer of `bytes` bytes with unspecified content, for filters that overwrite all of it.
    pub fn buffer_of(&self, bytes: usize) -> Buffer {
        self.runtime.pool.sized(bytes)
    }

    /// The unit of work.
    pub fn unit(&self) -> &UnitOfWork {
        self.unit
    }

    /// Which copy this is.
    pub fn info(&self) -> &CopyInfo {
        self.info
    }

    /// Whether the unit of work was aborted. Filters that compute for long between reads and
    /// writes should check this and return.
    pub fn is_aborted(&self) -> bool {
        self.runtime.is_aborted()
    }
}
