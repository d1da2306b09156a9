//! What a filter sees of its streams.

use super::counters::{add, add_time};
use super::filter::{Failure, Place, Stop, Unit};
use super::site::Site;
use crate::transport::Buffer;
use std::time::Instant;

/// The streams of a copy, for the time of a unit of work.
#[derive(Debug)]
pub struct Io<'a> {
    pub(super) site: &'a mut Site,
    pub(super) place: &'a Place,
    pub(super) unit: &'a Unit,
    /// When the filter's own code went on.
    pub(super) since: Instant,
}

/// A buffer that came.
#[derive(Debug)]
pub struct Received {
    /// By which of the filter's input streams, from 0, in the order in which they were joined.
    pub stream: usize,
    /// What its writer gave it along.
    pub tag: u64,
    /// Its bytes.
    pub body: Buffer,
}

impl Io<'_> {
    /// The next buffer, from any input and any copy of its producer, in the order of arrival. `None`: all of them have ended
    /// this unit of work. A failure must be passed on.
    pub fn read(&mut self) -> Result<Option<Received>, Failure> {
        self.pause();
        let received = self.site.read();
        let waited = self.go_on();
        add_time(&self.site.counters.waited_in_ns, waited);
        if let Ok(Some(received)) = &received {
            add(&self.site.counters.buffers_in, 1);
            add(&self.site.counters.bytes_in, received.body.len() as u64);
        }
        Ok(received?)
    }

    /// Writes a buffer to an output stream: 0 is the first that was joined. Some copy at the stream's other end gets it, with
    /// the `tag`, which is the filters' own: where the buffer belongs, say. Waits while every copy there has enough. A
    /// failure must be passed on.
    pub fn write(&mut self, stream: usize, tag: u64, body: impl Into<Buffer>) -> Result<(), Failure> {
        let body = body.into();
        if body.len() as u64 > self.place.limit_bytes {
            return Err(Stop::TooLarge { bytes: body.len(), limit_bytes: self.place.limit_bytes }.into());
        }
        self.pause();
        add(&self.site.counters.buffers_out, 1);
        add(&self.site.counters.bytes_out, body.len() as u64);
        let written = self.site.write(stream, tag, body);
        let waited = self.go_on();
        add_time(&self.site.counters.waited_out_ns, waited);
        Ok(written?)
    }

    /// An empty buffer with room for so many bytes, whose memory is used again.
    pub fn buffer(&self, capacity_bytes: usize) -> Buffer {
        self.site.pool.buffer(capacity_bytes)
    }

    /// The query.
    pub fn unit(&self) -> &Unit {
        self.unit
    }

    /// Which copy this is.
    pub fn place(&self) -> &Place {
        self.place
    }

    /// Whether the unit of work was given up: for filters that compute for long between reads and writes.
    pub fn is_given_up(&self) -> bool {
        self.site.is_given_up()
    }

    /// The filter is done.
    pub(super) fn leave(mut self) {
        self.pause();
    }

    fn pause(&mut self) {
        let now = Instant::now();
        add_time(&self.site.counters.busy_ns, now - self.since);
        self.since = now;
    }

    fn go_on(&mut self) -> std::time::Duration {
        let now = Instant::now();
        let waited = now - self.since;
        self.since = now;
        waited
    }
}
