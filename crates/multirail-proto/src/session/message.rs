//! The messages that a session is sending, and how many it accepts.

use super::limits::{COPY_LIMIT_BYTES, MAX_HELD_MESSAGES, WINDOW_BYTES};
use super::serial::serial_less;
use crate::striping::{Channel, Striping};
use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};

/// Buffers of confirmed copies that are kept for later ones. The allocator would return the memory
/// to the system each time, and the system would provide it page by page.
const MAX_SPARES: usize = 16;
/// Copies of other lengths get a buffer from the allocator.
const SPARE_BYTES: RangeInclusive<usize> = 16 << 10..=COPY_LIMIT_BYTES as usize;

/// One message on its way.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Its serial number.
    pub(super) message: u32,
    pub(super) total_bytes: u64,
    /// Its bytes; `None` if they are in the memory of the caller, who waits.
    pub(super) copy: Option<Vec<u8>>,
    /// Which bytes which channel sends.
    pub(super) striping: Striping,
    pub(super) fragment_bytes: u32,
    /// Some run was claimed. An empty message has nothing unclaimed even before that.
    pub(super) begun: bool,
    /// Channels that have sent *Start* and owe an *End*.
    pub(super) open_ended: Vec<Channel>,
    /// Ranges that were already sent a second time.
    pub(super) rescued: Vec<Range<u64>>,
}

impl Outgoing {
    /// Whether every byte has been claimed by a channel.
    pub(super) fn is_claimed(&self) -> bool {
        self.begun && self.striping.is_claimed()
    }
}

/// The messages of one direction: the one that channels claim from, and earlier ones that are not
/// confirmed.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Serial number of the next message.
    pub(super) next_message: u32,
    /// The message that channels claim from: the last one begun.
    pub(super) current: Option<Outgoing>,
    /// Copied messages that are claimed and not confirmed, in order.
    pub(super) held: VecDeque<Outgoing>,
    pub(super) held_bytes: u64,
    spares: Vec<Vec<u8>>,
}

impl Messages {
    /// Whether a message of this length can begin now.
    pub(super) fn can_begin(&self, total_bytes: u64) -> bool {
        self.current.is_none()
            && self.held.len() < MAX_HELD_MESSAGES
            && (total_bytes > COPY_LIMIT_BYTES || self.held_bytes + total_bytes <= WINDOW_BYTES)
    }

    /// Begins a message; returns its serial number. No message is current.
    pub(super) fn begin(
        &mut self,
        total_bytes: u64,
        copy: Option<Vec<u8>>,
        striping: Striping,
        fragment_bytes: u32,
    ) -> u32 {
        debug_assert!(self.current.is_none());
        let message = self.next_message;
        self.next_message = message.wrapping_add(1);
        self.current = Some(Outgoing {
            message,
            total_bytes,
            copy,
            striping,
            fragment_bytes,
            begun: false,
            open_ended: Vec::new(),
            rescued: Vec::new(),
        });
        message
    }

    /// Whether the window has room for more of the current message.
    pub(super) fn window_is_open(&self) -> bool {
        let Some(current) = &self.current else { return false };
        let claimed_bytes = current.total_bytes.saturating_sub(current.striping.unclaimed_bytes());
        self.held_bytes == 0 || self.held_bytes + claimed_bytes <= WINDOW_BYTES
    }

    /// Holds the current message if it is a copy and entirely claimed. A full socket may keep the
    /// rest of a run waiting; the next message does not wait for that and finds other channels.
    pub(super) fn hold_current(&mut self) {
        let claimed = |c: &mut Outgoing| c.copy.is_some() && c.is_claimed() && c.open_ended.is_empty();
        if let Some(current) = self.current.take_if(claimed) {
            self.held_bytes += current.total_bytes;
            self.held.push_back(current);
        }
    }

    /// Whether everything that was sent is confirmed.
    pub(super) fn all_confirmed(&self) -> bool {
        self.current.is_none() && self.held.is_empty()
    }

    /// The peer has received every message before `below`.
    pub(super) fn confirm_below(&mut self, below: u32) {
        while let Some(held) = self.held.pop_front_if(|h| serial_less(h.message, below)) {
            self.held_bytes -= held.total_bytes;
            self.keep_spare(held);
        }
        if let Some(current) = self.current.take_if(|c| serial_less(c.message, below)) {
            self.keep_spare(current);
        }
    }

    /// An empty buffer for the copy of a message of `bytes`.
    pub(super) fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let spare = if SPARE_BYTES.contains(&bytes) { self.spares.pop() } else { None };
        spare.unwrap_or_else(|| Vec::with_capacity(bytes))
    }

    fn keep_spare(&mut self, confirmed: Outgoing) {
        if let Some(mut copy) = confirmed.copy.filter(|c| SPARE_BYTES.contains(&c.capacity()))
            && self.spares.len() < MAX_SPARES
        {
            copy.clear();
            self.spares.push(copy);
        }
    }

    /// The message of that serial number, unless it is confirmed or `None`.
    pub(super) fn find(&self, message: Option<u32>) -> Option<&Outgoing> {
        let message = message?;
        self.current
            .as_ref()
            .filter(|c| c.message == message)
            .or_else(|| self.held.iter().find(|h| h.message == message))
    }

    /// The message of that serial number, unless it is confirmed.
    pub(super) fn find_mut(&mut self, message: u32) -> Option<&mut Outgoing> {
        match &mut self.current {
            Some(current) if current.message == message => Some(current),
            _ => self.held.iter_mut().find(|h| h.message == message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::striping::{ChannelView, Next, Strategy};

    const VIEW: ChannelView =
        ChannelView { up: true, rate_bytes_s: 0.0, latency_us: 0.0, backlog_bytes: 0, max_run_bytes: u64::MAX };

    /// Everything has a channel.
    fn claimed(bytes: u64) -> Striping {
        let mut striping = Striping::new(Strategy::Single, bytes, 1, &[VIEW]);
        while let Next::Run(_) = striping.next(0, &[VIEW]) {}
        striping
    }

    /// Begins a copied message and claims all of it.
    fn hold(messages: &mut Messages, bytes: usize) {
        messages.begin(bytes as u64, Some(vec![0; bytes]), claimed(bytes as u64), 1);
        messages.current.as_mut().expect("current").begun = true;
        messages.hold_current();
        assert!(messages.current.is_none());
    }

    #[test]
    fn copies_are_accepted_up_to_the_window() {
        let mut messages = Messages::default();
        for _ in 1..WINDOW_BYTES / COPY_LIMIT_BYTES {
            hold(&mut messages, COPY_LIMIT_BYTES as usize);
        }
        assert!(messages.can_begin(COPY_LIMIT_BYTES));
        hold(&mut messages, 1);
        assert!(!messages.can_begin(COPY_LIMIT_BYTES) && messages.can_begin(COPY_LIMIT_BYTES - 1));
        assert!(messages.can_begin(COPY_LIMIT_BYTES + 1), "it waits for the window after it has begun");
        messages.confirm_below(1);
        assert!(messages.can_begin(COPY_LIMIT_BYTES));
    }

    #[test]
    fn a_copy_longer_than_the_window_is_the_only_one_under_way() {
        let mut messages = Messages::default();
        hold(&mut messages, 2 * WINDOW_BYTES as usize);
        assert!(!messages.can_begin(1));
        messages.begin(WINDOW_BYTES, Some(vec![0; WINDOW_BYTES as usize]), claimed(WINDOW_BYTES), 1);
        assert!(!messages.window_is_open());
        messages.confirm_below(1);
        assert!(messages.window_is_open());
    }

    #[test]
    fn short_copies_are_accepted_up_to_their_number() {
        let mut messages = Messages::default();
        for _ in 1..MAX_HELD_MESSAGES {
            hold(&mut messages, 0);
        }
        assert!(messages.can_begin(0));
        hold(&mut messages, 0);
        assert!(!messages.can_begin(0) && !messages.can_begin(COPY_LIMIT_BYTES + 1));
    }
}
