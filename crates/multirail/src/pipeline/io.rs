//! What a filter sees of its streams.

use super::counters::{Doing, add};
use super::filter::{Failure, Place, Stop, Unit};
use super::site::Site;
use crate::transport::Buffer;
use std::os::fd::RawFd;

/// The streams of a copy, for the time of a unit of work.
#[derive(Debug)]
pub struct Io<'a> {
    pub(super) site: &'a mut Site,
    pub(super) place: &'a Place,
    pub(super) unit: &'a Unit,
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

/// What [`Io::read_or_poll`] came back with.
#[derive(Debug)]
pub(super) enum Next {
    Buffer(Received),
    /// All inputs have ended this unit of work.
    End,
    Nothing,
}

impl<'a> Io<'a> {
    /// The filter's own code begins.
    pub(super) fn new(site: &'a mut Site, place: &'a Place, unit: &'a Unit) -> Self {
        site.counters.turn_to(Doing::Works);
        Self { site, place, unit }
    }
}

impl Io<'_> {
    /// The next buffer, from any input and any copy of its producer, in the order of arrival. `None`: all of them have ended
    /// this unit of work. A failure must be passed on.
    pub fn read(&mut self) -> Result<Option<Received>, Failure> {
        self.site.counters.turn_to(Doing::Reads);
        let received = self.site.read();
        self.site.counters.turn_to(Doing::Works);
        if let Ok(Some(received)) = &received {
            self.count(received);
        }
        Ok(received?)
    }

    /// As [`Site::read_or_poll`]. `works`: the filter has somebody who works while it sleeps.
    pub(super) fn read_or_poll(&mut self, wanted: bool, works: bool, fds: &[(RawFd, bool)]) -> Result<Next, Failure> {
        self.site.counters.turn_to(if works { Doing::Works } else { Doing::Reads });
        let next = self.site.read_or_poll(wanted, fds);
        self.site.counters.turn_to(Doing::Works);
        if let Ok(Next::Buffer(received)) = &next {
            self.count(received);
        }
        Ok(next?)
    }

    /// As [`Site::is_kept`].
    pub(super) fn is_kept(&self) -> bool {
        self.site.is_kept()
    }

    fn count(&self, received: &Received) {
        add(&self.site.counters.buffers_in, 1);
        add(&self.site.counters.bytes_in, received.body.len() as u64);
    }

    /// Writes a buffer to an output stream: 0 is the first that was joined. Some copy at the stream's other end gets it, with
    /// the `tag`, which is the filters' own: where the buffer belongs, say. Waits while every copy there has enough. A
    /// failure must be passed on.
    pub fn write(&mut self, stream: usize, tag: u64, body: impl Into<Buffer>) -> Result<(), Failure> {
        let body = body.into();
        if body.len() as u64 > self.place.limit_bytes {
            return Err(Stop::TooLarge { bytes: body.len(), limit_bytes: self.place.limit_bytes }.into());
        }
        self.site.counters.turn_to(Doing::Writes);
        add(&self.site.counters.buffers_out, 1);
        add(&self.site.counters.bytes_out, body.len() as u64);
        let written = self.site.write(stream, tag, body);
        self.site.counters.turn_to(Doing::Works);
        Ok(written?)
    }

    /// An empty buffer with room for so many bytes, whose memory is used again.
    pub fn buffer(&self, capacity_bytes: usize) -> Buffer {
        self.site.pool.buffer(capacity_bytes)
    }

    /// A buffer of so many bytes, whatever they are: for filters that write all of them.
    pub fn buffer_of(&self, bytes: usize) -> Buffer {
        self.site.pool.sized(bytes)
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
}
