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
    /// What it made of a buffer is with the next filter. To a producer that keeps buffers.
    Done,
    /// Has something come of this origin? To the consumer, by who works on a replay.
    Ask,
    /// So much. To the producer.
    Answer,
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
    /// The buffer that it was made of, as the copies of its filter all name it; 0: of none in particular.
    pub origin: u64,
    /// Of so many that were made of it; in an answer, the same.
    pub of: u16,
    /// A replay, or a question about one: the dead copy that had it. In an answer: how much came.
    pub replay: Option<u16>,
}

/// Names a buffer for all copies of the filter that gets it: by its stream, the copy it comes from, and its number there.
pub(super) fn origin(stream: usize, copy: usize, number: u64) -> u64 {
    (stream as u64 + 1) << 48 | (copy as u64) << 32 | (number & 0xffff_ffff)
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Data, Kind::End, Kind::Started, Kind::Done, Kind::Ask, Kind::Answer];
}

/// The tag of an end of work that came too early, because somebody failed.
pub(super) const GIVEN_UP: u64 = 1;

impl Head {
    pub fn new(kind: Kind, unit: u32, number: u64) -> Self {
        Self { kind, unit, number, tag: 0, origin: 0, of: 0, replay: None }
    }

    pub fn with(self, body: Buffer) -> Message {
        let mut head = [0; HEAD_BYTES];
        head[0] = self.kind as u8;
        head[1] = u8::from(self.replay.is_some());
        head[2..4].copy_from_slice(&self.replay.unwrap_or(0).to_le_bytes());
        head[4..8].copy_from_slice(&self.unit.to_le_bytes());
        head[8..16].copy_from_slice(&self.number.to_le_bytes());
        head[16..24].copy_from_slice(&self.tag.to_le_bytes());
        head[24..32].copy_from_slice(&self.origin.to_le_bytes());
        head[32..34].copy_from_slice(&self.of.to_le_bytes());
        Message { head, body }
    }

    /// A message without a body.
    pub fn alone(self) -> Message {
        self.with(Buffer::default())
    }

    pub fn of(message: &Message) -> Result<Self> {
        let [kind, replays, r0, r1, u0, u1, u2, u3, rest @ ..] = &message.head;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&rest[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let kind = Kind::ALL.into_iter().find(|k| *k as u8 == *kind);
        let kind = kind.ok_or_else(|| Error::Protocol(format!("a message of kind {} on a stream", message.head[0])))?;
        Ok(Self {
            kind,
            unit: u32::from_le_bytes([*u0, *u1, *u2, *u3]),
            number: word(0),
            tag: word(8),
            origin: word(16),
            of: word(24) as u16,
            replay: (*replays != 0).then_some(u16::from_le_bytes([*r0, *r1])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_come_back(kind in 0usize..6, unit: u32, number: u64, tag: u64, origin: u64, of: u16, replay: Option<u16>) {
            let head = Head { kind: Kind::ALL[kind], unit, number, tag, origin, of, replay };
            prop_assert_eq!(Head::of(&head.alone()).unwrap(), head);
        }

        #[test]
        fn any_bytes_are_a_head_or_an_error(head: [u8; HEAD_BYTES]) {
            let read = Head::of(&Message { head, body: Buffer::default() });
            prop_assert_eq!(read.is_ok(), (1..=6).contains(&head[0]));
        }
    }
}
