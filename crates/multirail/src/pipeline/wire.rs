//! What travels on an edge between two copies, beside the buffers themselves.

use crate::error::{Error, Result};
use crate::transport::{Buffer, HEAD_BYTES, Message};

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A buffer. To the consumer.
    Data = 1,
    /// The end-of-work marker. To the consumer.
    End,
    /// The consumer has started on a buffer. To the producer.
    Started,
    /// The consumer has worked on a buffer, and holds what it made of it. To a producer that keeps buffers.
    Ready,
    /// It may send that on. To the consumer.
    Go,
    /// It has, and it is there. To the producer.
    Done,
}

/// The head of each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub kind: Kind,
    /// The unit of work.
    pub unit: u32,
    /// The buffer's, in this unit, from this copy on this stream.
    pub number: u64,
    /// The filters' own: where the buffer belongs.
    pub tag: u64,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Data, Kind::End, Kind::Started, Kind::Ready, Kind::Go, Kind::Done];
}

impl Head {
    pub fn with(self, body: Buffer) -> Message {
        let mut head = [0; HEAD_BYTES];
        head[0] = self.kind as u8;
        head[4..8].copy_from_slice(&self.unit.to_le_bytes());
        head[8..16].copy_from_slice(&self.number.to_le_bytes());
        head[16..24].copy_from_slice(&self.tag.to_le_bytes());
        Message { head, body }
    }

    /// A message without a body.
    pub fn alone(self) -> Message {
        self.with(Buffer::default())
    }

    pub fn of(message: &Message) -> Result<Self> {
        let [kind, _, _, _, u0, u1, u2, u3, rest @ ..] = &message.head;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&rest[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let kind = Kind::ALL.into_iter().find(|k| *k as u8 == *kind);
        let kind = kind.ok_or_else(|| Error::Protocol(format!("a message of kind {} on a stream", message.head[0])))?;
        Ok(Self { kind, unit: u32::from_le_bytes([*u0, *u1, *u2, *u3]), number: word(0), tag: word(8) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_come_back(kind in 0usize..6, unit: u32, number: u64, tag: u64) {
            let head = Head { kind: Kind::ALL[kind], unit, number, tag };
            prop_assert_eq!(Head::of(&head.alone()).unwrap(), head);
        }

        #[test]
        fn any_bytes_are_a_head_or_an_error(head: [u8; HEAD_BYTES]) {
            let read = Head::of(&Message { head, body: Buffer::default() });
            prop_assert_eq!(read.is_ok(), (1..=6).contains(&head[0]));
        }
    }
}
