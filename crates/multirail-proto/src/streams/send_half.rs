//! The sending half of one stream: bytes that were written and not sent.

use super::frame::U48_MAX;
use super::limits::{INITIAL_WINDOW_BYTES, RELEASED_BYTES, SEND_BUFFER_BYTES};
use std::collections::VecDeque;

/// How far the end of a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// More bytes can be written.
    Open,
    /// No more bytes are written. The last frame is not sent yet.
    Asked,
    /// The last frame is sent.
    Sent,
}

/// The sending half of one stream.
#[derive(Debug)]
pub(super) struct SendHalf {
    unsent: VecDeque<u8>,
    /// Bytes that were sent.
    sent_bytes: u64,
    /// The offset up to which the peer has room.
    limit: u64,
    end: End,
}

impl SendHalf {
    pub(super) fn new() -> Self {
        Self { unsent: VecDeque::new(), sent_bytes: 0, limit: INITIAL_WINDOW_BYTES, end: End::Open }
    }

    /// How many bytes can be written now; `None` after the end.
    pub(super) fn room_bytes(&self) -> Option<usize> {
        (self.end == End::Open).then_some(SEND_BUFFER_BYTES - self.unsent.len())
    }

    /// Takes the first of `bytes`, as many as there is room for; `None` after the end.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        let taken = &bytes[..bytes.len().min(self.room_bytes()?)];
        self.unsent.extend(taken);
        Some(taken.len())
    }

    /// No more bytes are written.
    pub(super) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Asked;
        }
    }

    /// Whether there is something to send now.
    pub(super) fn is_due(&self) -> bool {
        self.sendable_bytes() > 0 || (self.unsent.is_empty() && self.end == End::Asked)
    }

    /// Whether everything was sent, with the end.
    pub(super) fn is_finished(&self) -> bool {
        self.end == End::Sent
    }

    /// Takes at most `most_bytes` for a frame: their offset, the bytes, and whether they are the
    /// last.
    pub(super) fn take(&mut self, most_bytes: usize, into: &mut Vec<u8>) -> (u64, bool) {
        let offset = self.sent_bytes;
        let count = most_bytes.min(self.sendable_bytes());
        let (front, back) = self.unsent.as_slices();
        let in_front = count.min(front.len());
        into.extend_from_slice(&front[..in_front]);
        into.extend_from_slice(&back[..count - in_front]);
        self.unsent.drain(..count);
        self.sent_bytes += count as u64;
        if self.unsent.is_empty() && self.unsent.capacity() >= RELEASED_BYTES {
            self.unsent = VecDeque::new();
        }
        let is_end = self.end == End::Asked && self.unsent.is_empty();
        if is_end {
            self.end = End::Sent;
        }
        (offset, is_end)
    }

    /// The peer has room up to `limit`. Limits can arrive in any order.
    pub(super) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Bytes that may be sent now.
    pub(super) fn sendable_bytes(&self) -> usize {
        let credit = self.limit.min(U48_MAX).saturating_sub(self.sent_bytes);
        (self.unsent.len() as u64).min(credit) as usize
    }
}
