//! What both hosts have done with each stream, kept apart from the streams themselves.

use multirail_proto::streams::{
    INITIAL_WINDOW_BYTES, MAX_GROWTH_BYTES, MAX_WINDOW_BYTES, ResetCode, SEND_BUFFER_BYTES, StreamId,
};
use std::collections::{BTreeMap, BTreeSet};

/// How a direction of a stream has ended for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its end was read.
    End,
    /// It was reset, by either host.
    Reset(ResetCode),
}

/// What one host has done with one stream.
#[derive(Debug, Default)]
pub struct Half {
    /// Every byte that was taken from it.
    written: Vec<u8>,
    /// How many bytes it has read.
    read: usize,
    is_finished: bool,
    ending: Option<Ending>,
    /// The code with which it has reset the stream, as far as it was not over.
    reset: Option<ResetCode>,
}

/// What both hosts have done with each stream.
#[derive(Debug, Default)]
pub struct Oracle {
    halves: [BTreeMap<StreamId, Half>; 2],
}

impl Oracle {
    /// A host has opened a stream, or learnt of it.
    pub fn opened(&mut self, host: usize, stream: StreamId) {
        assert!(self.halves[host].insert(stream, Half::default()).is_none(), "stream {stream} is opened twice");
    }

    /// A host has written these bytes.
    pub fn wrote(&mut self, host: usize, stream: StreamId, bytes: &[u8]) {
        let half = self.half(host, stream);
        assert!(!half.is_finished, "stream {stream} takes bytes after its end");
        half.written.extend_from_slice(bytes);
        self.check_kept(host, stream);
    }

    /// A host has read these bytes: they are what the other one has written.
    pub fn read(&mut self, host: usize, stream: StreamId, bytes: &[u8]) {
        let half = self.half(host, stream);
        let from = half.read;
        half.read += bytes.len();
        let written = &self.half(1 - host, stream).written;
        assert!(written.get(from..from + bytes.len()) == Some(bytes), "wrong bytes of stream {stream} at {from}");
    }

    /// A host has finished its direction.
    pub fn finished(&mut self, host: usize, stream: StreamId) {
        self.half(host, stream).is_finished = true;
    }

    /// A host has read the end of a stream, or heard that it is over.
    pub fn ended(&mut self, host: usize, stream: StreamId, ending: Ending) {
        let half = self.half(host, stream);
        half.ending = Some(ending);
        let (read, own) = (half.read, half.reset);
        let other = self.halves[1 - host].get(&stream);
        match ending {
            Ending::End => {
                let is_whole = other.is_some_and(|other| other.is_finished && read == other.written.len());
                assert!(is_whole, "stream {stream} ends after {read} bytes");
            }
            Ending::Reset(code) => {
                let codes = [own, other.and_then(|other| other.reset)];
                assert!(codes.contains(&Some(code)), "stream {stream} has the code {code:?}, which neither host gave");
            }
        }
    }

    /// A host has reset a stream.
    pub fn reset(&mut self, host: usize, stream: StreamId, code: ResetCode) {
        self.half(host, stream).reset.get_or_insert(code);
    }

    /// A host has done with a stream, which resets it if it was not read to its end.
    pub fn released(&mut self, host: usize, stream: StreamId) {
        let half = self.half(host, stream);
        half.is_finished = true;
        if half.ending.is_none() {
            half.reset.get_or_insert(ResetCode::DROPPED);
        }
    }

    /// Whether a host has heard the end of a stream, and has finished it.
    pub fn is_done(&self, host: usize, stream: StreamId) -> bool {
        let half = &self.halves[host][&stream];
        half.reset.is_some()
            || matches!(half.ending, Some(Ending::Reset(_)))
            || half.is_finished && half.ending.is_some()
    }

    /// The streams that a host knows.
    pub fn streams(&self, host: usize) -> impl Iterator<Item = StreamId> {
        self.halves[host].keys().copied()
    }

    /// Whether every stream is over on both hosts.
    pub fn is_over(&self) -> bool {
        let same = || self.halves[0].keys().eq(self.halves[1].keys());
        (0..2).all(|host| self.streams(host).all(|stream| self.is_done(host, stream))) && same()
    }

    /// The end of a run: whatever was not reset has arrived to its end, and resets have arrived.
    pub fn check_over(&self) {
        let streams: BTreeSet<StreamId> = self.halves.iter().flat_map(BTreeMap::keys).copied().collect();
        for (stream, host) in streams.into_iter().flat_map(|stream| [(stream, 0), (stream, 1)]) {
            let half = self.halves[host].get(&stream).unwrap_or_else(|| panic!("host {host} never heard of {stream}"));
            let other = self.halves[1 - host].get(&stream).unwrap_or_else(|| panic!("only host {host} knows {stream}"));
            match (half.reset, other.reset) {
                (None, None) => {
                    assert!(half.ending == Some(Ending::End) && half.read == other.written.len(), "stream {stream}");
                }
                // It may have read everything before.
                (None, Some(code)) => {
                    let is_heard = [Some(Ending::Reset(code)), Some(Ending::End)].contains(&half.ending);
                    assert!(is_heard, "host {host} has not heard that {stream} is reset: {:?}", half.ending);
                }
                (Some(_), _) => {}
            }
        }
    }

    /// What is written and not read is in the writer's buffer, or within the reader's window.
    fn check_kept(&self, host: usize, stream: StreamId) {
        let kept_bytes = |stream: StreamId, half: &Half| {
            let other = self.halves[1 - host].get(&stream);
            let is_kept = other.is_none_or(|other| other.reset.is_none() && half.reset.is_none());
            let read = other.map_or(0, |other| other.read);
            (if is_kept { (half.written.len() - read) as u64 } else { 0 }, read)
        };
        let (kept, read) = kept_bytes(stream, &self.halves[host][&stream]);
        let window = if read == 0 { INITIAL_WINDOW_BYTES } else { MAX_WINDOW_BYTES };
        assert!(kept <= SEND_BUFFER_BYTES as u64 + window, "{kept} bytes of {stream} are kept, {read} were read");
        let all: u64 = self.halves[host].iter().map(|(stream, half)| kept_bytes(*stream, half).0).sum();
        let count = self.halves[host].len() as u64;
        assert!(all <= count * (SEND_BUFFER_BYTES as u64 + INITIAL_WINDOW_BYTES) + MAX_GROWTH_BYTES, "{all} are kept");
    }

    fn half(&mut self, host: usize, stream: StreamId) -> &mut Half {
        self.halves[host].get_mut(&stream).expect("the host knows it")
    }
}
