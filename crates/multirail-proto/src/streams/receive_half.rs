//! The receiving half of one stream: bytes that have arrived and were not read, and the window.

use super::limits::{EARLY_PIECE_BYTES, INITIAL_WINDOW_BYTES, MAX_WINDOW_BYTES, RELEASED_BYTES};
use super::stream_id::StreamId;
use super::violation::StreamViolation;
use std::collections::{BTreeMap, VecDeque};

/// Limits that can be told before the bytes up to the first one have arrived: one for each quarter of a
/// window.
const LIMITS_UNDER_WAY: usize = 4;

/// The receiving half of one stream.
///
/// The *window* is how far the sender's limit is ahead of what was read. It doubles if the reader has
/// read everything that is in order while the sender waited: bytes have arrived that end at a limit. A
/// sender that waits for a slow reader does not count. Implementations of QUIC compare the time between two limits
/// with the round trip instead. Here a limit also waits behind the data of the other direction, which
/// no round trip of the kernel contains.
#[derive(Debug)]
pub(super) struct ReceiveHalf {
    stream: StreamId,
    /// Bytes that are next to be read.
    ready: VecDeque<u8>,
    /// The offset behind `ready`.
    ready_to: u64,
    /// Pieces that came before their turn, by offset. They do not overlap.
    early: BTreeMap<u64, Vec<u8>>,
    /// The offset up to which the sender may send.
    limit: u64,
    /// The limits before.
    limits_before: [u64; LIMITS_UNDER_WAY],
    window_bytes: u64,
    /// The last limit up to which bytes have arrived: the sender had to wait there.
    stop: u64,
    /// The reader has waited for the sender since the last limit, while the sender waited for a limit.
    has_starved: bool,
    /// Where the stream ends, once that is known.
    end: Option<u64>,
}

/// What the arrival of bytes did to the memory of early pieces.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct EarlyChange {
    pub(super) added_bytes: u64,
    pub(super) removed_bytes: u64,
}

impl ReceiveHalf {
    pub(super) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            ready: VecDeque::new(),
            ready_to: 0,
            early: BTreeMap::new(),
            limit: INITIAL_WINDOW_BYTES,
            limits_before: [0; LIMITS_UNDER_WAY],
            window_bytes: INITIAL_WINDOW_BYTES,
            stop: 0,
            has_starved: false,
            end: None,
        }
    }

    /// Bytes have arrived, in any order.
    pub(super) fn insert(&mut self, offset: u64, bytes: &[u8], is_end: bool) -> Result<EarlyChange, StreamViolation> {
        let stream = self.stream;
        let end = offset + bytes.len() as u64;
        if end > self.limit {
            return Err(StreamViolation::BeyondLimit { stream, end, limit: self.limit });
        }
        if self.end.is_some_and(|last| is_end || end > last) || (is_end && end < self.highest()) {
            return Err(StreamViolation::BehindEnd(stream));
        }
        if is_end {
            self.end = Some(end);
        }
        if bytes.is_empty() {
            return Ok(EarlyChange::default());
        }
        let before = self.early.range(..end).next_back().map(|(start, piece)| start + piece.len() as u64);
        if offset < self.ready_to.max(before.unwrap_or(0)) {
            return Err(StreamViolation::Twice { stream, offset });
        }
        if end == self.limit || self.limits_before.contains(&end) {
            self.stop = self.stop.max(end);
            // Bytes before it may still be under way on a slower rail.
            self.has_starved |= self.ready.is_empty();
        }
        if offset > self.ready_to {
            self.early.insert(offset, bytes.to_vec());
            return Ok(EarlyChange { added_bytes: cost_bytes(bytes), removed_bytes: 0 });
        }
        self.append(bytes);
        let mut removed_bytes = 0;
        while let Some(piece) = self.early.remove(&self.ready_to) {
            removed_bytes += cost_bytes(&piece);
            self.append(&piece);
        }
        Ok(EarlyChange { added_bytes: 0, removed_bytes })
    }

    fn append(&mut self, bytes: &[u8]) {
        self.ready.extend(bytes);
        self.ready_to += bytes.len() as u64;
    }

    /// The offset behind the last byte that has arrived.
    fn highest(&self) -> u64 {
        let early = self.early.last_key_value().map_or(0, |(start, piece)| start + piece.len() as u64);
        self.ready_to.max(early)
    }

    /// What early pieces cost.
    pub(super) fn early_bytes(&self) -> u64 {
        self.early.values().map(|piece| cost_bytes(piece)).sum()
    }

    /// Whether a read would not wait.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.is_read()
    }

    /// Whether everything was read, up to the end.
    pub(super) fn is_read(&self) -> bool {
        self.ready.is_empty() && self.end == Some(self.ready_to)
    }

    /// The first bytes to be read; empty only if there are none.
    pub(super) fn first(&self) -> &[u8] {
        self.ready.as_slices().0
    }

    /// The first `count` bytes of [`ReceiveHalf::first`] were read.
    pub(super) fn consume(&mut self, count: usize) {
        self.ready.drain(..count);
        self.has_starved |= self.ready.is_empty() && self.ready_to == self.stop;
        if self.ready.is_empty() && self.ready.capacity() >= RELEASED_BYTES {
            self.ready = VecDeque::new();
        }
    }

    /// The new limit for the sender, if it is time to tell it. The window may grow by
    /// `most_growth_bytes`.
    pub(super) fn grant(&mut self, most_growth_bytes: u64) -> Option<u64> {
        let read_to = self.ready_to - self.ready.len() as u64;
        // Told early, a limit is there before the sender has reached the one before, also over a slow rail.
        if self.end.is_some() || self.limit - read_to > self.window_bytes / 4 * 3 {
            return None;
        }
        let growth_bytes = self.window_bytes.min(MAX_WINDOW_BYTES - self.window_bytes);
        if self.has_starved && growth_bytes <= most_growth_bytes {
            self.window_bytes += growth_bytes;
        }
        self.has_starved = false;
        self.limits_before.rotate_right(1);
        self.limits_before[0] = self.limit;
        self.limit = read_to + self.window_bytes;
        Some(self.limit)
    }

    /// How much larger the window is than the first one.
    pub(super) fn growth_bytes(&self) -> u64 {
        self.window_bytes - INITIAL_WINDOW_BYTES
    }
}

fn cost_bytes(piece: &[u8]) -> u64 {
    piece.len() as u64 + EARLY_PIECE_BYTES
}
