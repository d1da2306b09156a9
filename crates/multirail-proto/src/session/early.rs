//! What has arrived of messages that are not due yet, kept within a limit.

use super::failure::{MAX_EARLY_BYTES, Violation};
use std::collections::{BTreeMap, VecDeque};

/// What a kept piece costs beside its bytes.
const EARLY_PIECE_BYTES: u64 = 64;

/// What is known of one message: its length and whether the sender waits for its confirmation.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Announced {
    pub(super) total_bytes: Option<u64>,
    pub(super) confirm: bool,
}

impl Announced {
    /// A channel announces `message`, which this is about.
    pub(super) fn open(&mut self, message: u32, total_bytes: u64, confirm: bool) -> Result<(), Violation> {
        if *self.total_bytes.get_or_insert(total_bytes) != total_bytes {
            return Err(Violation::TwoLengths { message });
        }
        self.confirm |= confirm;
        Ok(())
    }
}

/// A piece of a message that arrived early: its offset and its bytes.
pub type Piece = (u64, Vec<u8>);

#[derive(Debug, Default)]
struct EarlyMessage {
    announced: Announced,
    pieces: VecDeque<Piece>,
}

/// Messages that overtook the one that is due. There are never more than
/// [`MAX_HELD_MESSAGES`](super::MAX_HELD_MESSAGES), since later serial numbers are refused.
#[derive(Debug, Default)]
pub(super) struct EarlyMessages {
    messages: BTreeMap<u32, EarlyMessage>,
    kept_bytes: u64,
}

impl EarlyMessages {
    /// What is announced of `message`.
    pub(super) fn announced(&self, message: u32) -> Announced {
        self.messages.get(&message).map_or_else(Announced::default, |early| early.announced)
    }

    /// A channel announces `message`.
    pub(super) fn open(&mut self, message: u32, total_bytes: u64, confirm: bool) -> Result<(), Violation> {
        self.messages.entry(message).or_default().announced.open(message, total_bytes, confirm)
    }

    /// Keeps a piece of `message`.
    pub(super) fn keep(&mut self, message: u32, offset: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.kept_bytes += bytes.len() as u64 + EARLY_PIECE_BYTES;
        if self.kept_bytes > MAX_EARLY_BYTES {
            return Err(Violation::TooMuchEarly);
        }
        self.messages.entry(message).or_default().pieces.push_back((offset, bytes.to_vec()));
        Ok(())
    }

    /// Whether anything is kept.
    pub(super) fn has_pieces(&self) -> bool {
        self.kept_bytes > 0
    }

    /// Takes the next piece of `message`, in the order of arrival.
    pub(super) fn take(&mut self, message: u32) -> Option<Piece> {
        if self.messages.is_empty() {
            return None;
        }
        match self.messages.get_mut(&message)?.pieces.pop_front() {
            Some(piece) => {
                self.kept_bytes -= piece.1.len() as u64 + EARLY_PIECE_BYTES;
                Some(piece)
            }
            None => {
                self.messages.remove(&message);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_kept_up_to_the_limit_and_come_in_order() {
        let mut early = EarlyMessages::default();
        early.keep(1, 7, &[1; 100]).expect("room");
        let rest = (MAX_EARLY_BYTES - 164 - 64) as usize;
        early.keep(2, 0, &vec![2; rest]).expect("just fits");
        assert_eq!(early.take(1), Some((7, vec![1; 100])));
        assert_eq!(early.take(1), None);
        early.keep(3, 0, &[3; 99]).expect("just fits again");
        assert_eq!(early.keep(3, 0, &[3; 1]), Err(Violation::TooMuchEarly));
    }
}
