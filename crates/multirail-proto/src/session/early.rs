//! What has arrived of messages that are not due yet, kept within a limit.

use super::failure::{MAX_EARLY_BYTES, Violation};
use crate::ledger::Ledger;
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
    /// What has arrived.
    ledger: Ledger,
    /// The application has the message already: [`EarlyMessages::take_complete`].
    taken: bool,
}

impl EarlyMessage {
    fn is_complete(&self) -> bool {
        !self.taken && self.announced.total_bytes == Some(self.ledger.bytes())
    }
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

    /// Keeps a piece of `message`, unless the application has the message already.
    pub(super) fn keep(&mut self, message: u32, offset: u64, bytes: &[u8]) -> Result<(), Violation> {
        let entry = self.messages.entry(message).or_default();
        if entry.taken {
            return Ok(());
        }
        self.kept_bytes += bytes.len() as u64 + EARLY_PIECE_BYTES;
        if self.kept_bytes > MAX_EARLY_BYTES {
            return Err(Violation::TooMuchEarly);
        }
        entry.ledger.insert(offset..offset + bytes.len() as u64);
        entry.pieces.push_back((offset, bytes.to_vec()));
        Ok(())
    }

    /// Takes a message that is complete before its turn. It is not `due`'s turn.
    pub(super) fn take_complete(&mut self, due: u32) -> Option<Vec<u8>> {
        let (_, early) = self.messages.iter_mut().find(|(message, early)| **message != due && early.is_complete())?;
        early.taken = true;
        let mut message = vec![0; early.ledger.bytes() as usize];
        for (offset, piece) in early.pieces.drain(..) {
            self.kept_bytes -= piece.len() as u64 + EARLY_PIECE_BYTES;
            let start = offset as usize;
            message[start..start + piece.len()].copy_from_slice(&piece);
        }
        Some(message)
    }

    /// Forgets `message`, whose turn it is, if the application has it already; returns whether it
    /// has.
    pub(super) fn forget_taken(&mut self, message: u32) -> bool {
        let taken = self.messages.get(&message).is_some_and(|early| early.taken);
        if taken {
            self.messages.remove(&message);
        }
        taken
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

    #[test]
    fn a_complete_message_is_taken_once_before_its_turn() {
        let mut early = EarlyMessages::default();
        for (message, total_bytes) in [(5, 10), (6, 4)] {
            early.open(message, total_bytes, false).expect("one length");
        }
        early.keep(6, 2, b"cd").expect("room");
        early.keep(5, 0, b"only a").expect("room");
        assert_eq!(early.take_complete(4), None);
        early.keep(6, 0, b"abc").expect("room, and a byte twice");
        assert_eq!(early.take_complete(6), None, "it is received as the message that is due");
        assert_eq!(early.take_complete(4), Some(b"abcd".to_vec()));
        assert_eq!(early.take_complete(4), None);
        early.keep(6, 0, b"ab").expect("it is dropped");
        assert_eq!(early.kept_bytes, 6 + EARLY_PIECE_BYTES, "only message 5 is kept");
        assert!(!early.forget_taken(5) && early.forget_taken(6) && !early.forget_taken(6));
    }
}
