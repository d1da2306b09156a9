//! Streams from one host to the other one, which reads whatever it can.

use multirail_proto::streams::{ReadOutcome, StreamEvent, StreamId, WriteOutcome};
use multirail_sim::streams::{Setup, StreamSession};
use std::collections::BTreeMap;

const SENDER: usize = 0;
const READER: usize = 1;

/// Streams from one host to the other one.
pub struct OneWay {
    pub session: StreamSession,
    /// Streams that always have data.
    endless: Vec<StreamId>,
    /// What was read of each stream.
    read_bytes: BTreeMap<StreamId, u64>,
    /// Streams whose reader has stopped.
    pub stopped: Vec<StreamId>,
}

impl OneWay {
    pub fn new(setup: &Setup) -> Self {
        let session = StreamSession::new(setup);
        Self { session, endless: Vec::new(), read_bytes: BTreeMap::new(), stopped: Vec::new() }
    }

    /// Opens a stream that always has data.
    pub fn open_endless(&mut self) -> StreamId {
        let stream = self.session.streams(SENDER).open().expect("there is room");
        self.endless.push(stream);
        stream
    }

    /// Sends so many bytes on a new stream.
    pub fn send(&mut self, bytes: usize) -> StreamId {
        let streams = self.session.streams(SENDER);
        let stream = streams.open().expect("there is room");
        assert_eq!(streams.write(stream, &vec![7; bytes]), WriteOutcome::Bytes(bytes));
        streams.finish(stream);
        stream
    }

    pub fn run_until(&mut self, until_us: f64) {
        while self.session.now_us() < until_us {
            self.step(until_us);
        }
    }

    pub fn step(&mut self, until_us: f64) {
        for stream in &self.endless {
            while let WriteOutcome::Bytes(_) = self.session.streams(SENDER).write(*stream, &[7; 32 << 10]) {}
        }
        while self.session.streams(SENDER).poll_event().is_some() {}
        self.session.step(until_us);
        while let Some(event) = self.session.streams(READER).poll_event() {
            if let StreamEvent::Opened(stream) | StreamEvent::Readable(stream) = event
                && !self.stopped.contains(&stream)
            {
                self.read(stream);
            }
        }
    }

    /// Reads all that there is.
    pub fn read(&mut self, stream: StreamId) {
        while let ReadOutcome::Bytes(bytes) = self.session.streams(READER).read(stream) {
            let count = bytes.len();
            *self.read_bytes.entry(stream).or_default() += count as u64;
            self.session.streams(READER).consume(stream, count);
        }
    }

    pub fn read_of(&self, stream: StreamId) -> u64 {
        self.read_bytes.get(&stream).copied().unwrap_or_default()
    }

    /// What was read of all streams.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.values().sum()
    }
}
