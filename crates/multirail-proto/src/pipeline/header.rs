//! The header of a message on an edge between two copies.
//!
//! ```text
//! byte  0   kind
//!       1   1 if bytes 2 and 3 hold a value
//!       2   replaced copy (data, query) or outputs that arrived (answer), u16
//!       4   unit of work, u32
//!       8   number of the buffer, u64
//!      16   tag, u64
//!      24   origin, u64
//!      32   outputs made of the origin, u16
//!      34   zero
//! ```
//!
//! All numbers are little-endian.

/// Length of an encoded header in bytes.
pub const HEADER_BYTES: usize = 40;

const DATA: u8 = 1;
const END: u8 = 2;
const STARTED: u8 = 3;
const DONE: u8 = 4;
const QUERY: u8 = 5;
const ANSWER: u8 = 6;
/// Tag of an end-of-work marker that is sent because the unit of work failed.
const ABORTED: u64 = 1;

/// The header of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the unit of work.
    pub unit: u32,
    /// What the message says.
    pub message: EdgeMessage,
}

/// The content of a message on an edge, apart from a buffer's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeMessage {
    /// To the consumer: a buffer, whose bytes are the message's body.
    Data(DataHeader),
    /// To the consumer: the end-of-work marker of DataCutter.
    End {
        /// The unit of work failed, so the buffers before the marker are incomplete.
        aborted: bool,
    },
    /// To the producer: the consumer has started on the buffer of this number.
    Started(u64),
    /// To the producer: what was made of the buffer of this number has reached the next filter.
    Done(u64),
    /// To the consumer: how many outputs of a dead copy have arrived?
    Query {
        /// The buffer that is replayed.
        origin: u64,
        /// The copy that had the buffer before.
        dead_copy: u16,
    },
    /// To the producer: the answer to a query.
    Answer {
        /// As in the query.
        origin: u64,
        /// Outputs that arrived.
        arrived: u16,
        /// Outputs that the dead copy made in total; 0 if none arrived.
        outputs: u16,
    },
}

/// Where a buffer belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Unique among the buffers of the sending copy. A replayed buffer keeps its number.
    pub number: u64,
    /// Set by the filter that wrote the buffer, for the filter that reads it.
    pub tag: u64,
    /// The input buffer that this one was made of, see [`origin`]; 0 if unknown.
    pub origin: u64,
    /// Number of buffers that were made of `origin`.
    pub outputs: u16,
    /// The dead copy that had this buffer before, if it is a replay.
    pub replay_of: Option<u16>,
}

/// A header whose kind byte, or the combination of fields, has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of unknown kind {0} on a stream")]
pub struct UnknownKind(pub u8);

/// Names a buffer identically for all copies of the filter that reads it.
///
/// `stream` counts the input streams of that filter, `copy` the copies of the producer.
pub fn origin(stream: usize, copy: usize, number: u64) -> u64 {
    (stream as u64 + 1) << 48 | (copy as u64) << 32 | (number & 0xffff_ffff)
}

impl Header {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, extra, number, tag, origin, outputs) = match self.message {
            EdgeMessage::Data(d) => (DATA, d.replay_of, d.number, d.tag, d.origin, d.outputs),
            EdgeMessage::End { aborted } => (END, None, 0, if aborted { ABORTED } else { 0 }, 0, 0),
            EdgeMessage::Started(number) => (STARTED, None, number, 0, 0, 0),
            EdgeMessage::Done(number) => (DONE, None, number, 0, 0, 0),
            EdgeMessage::Query { origin, dead_copy } => (QUERY, Some(dead_copy), 0, 0, origin, 0),
            EdgeMessage::Answer { origin, arrived, outputs } => (ANSWER, Some(arrived), 0, 0, origin, outputs),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[1] = u8::from(extra.is_some());
        bytes[2..4].copy_from_slice(&extra.unwrap_or(0).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.unit.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&tag.to_le_bytes());
        bytes[24..32].copy_from_slice(&origin.to_le_bytes());
        bytes[32..34].copy_from_slice(&outputs.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// If the kind is unknown, or a query names no copy.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, UnknownKind> {
        let [kind, has_extra, e0, e1, u0, u1, u2, u3, rest @ ..] = bytes;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&rest[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let extra = (*has_extra != 0).then_some(u16::from_le_bytes([*e0, *e1]));
        let (number, tag, origin, outputs) = (word(0), word(8), word(16), word(24) as u16);
        let message = match (*kind, extra) {
            (DATA, replay_of) => EdgeMessage::Data(DataHeader { number, tag, origin, outputs, replay_of }),
            (END, _) => EdgeMessage::End { aborted: tag == ABORTED },
            (STARTED, _) => EdgeMessage::Started(number),
            (DONE, _) => EdgeMessage::Done(number),
            (QUERY, Some(dead_copy)) => EdgeMessage::Query { origin, dead_copy },
            (ANSWER, arrived) => EdgeMessage::Answer { origin, arrived: arrived.unwrap_or(0), outputs },
            _ => return Err(UnknownKind(*kind)),
        };
        Ok(Self { unit: u32::from_le_bytes([*u0, *u1, *u2, *u3]), message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> impl Strategy<Value = EdgeMessage> {
        let data = any::<(u64, u64, u64, u16, Option<u16>)>();
        prop_oneof![
            data.prop_map(|(number, tag, origin, outputs, replay_of)| {
                EdgeMessage::Data(DataHeader { number, tag, origin, outputs, replay_of })
            }),
            any::<bool>().prop_map(|aborted| EdgeMessage::End { aborted }),
            any::<u64>().prop_map(EdgeMessage::Started),
            any::<u64>().prop_map(EdgeMessage::Done),
            any::<(u64, u16)>().prop_map(|(origin, dead_copy)| EdgeMessage::Query { origin, dead_copy }),
            any::<(u64, u16, u16)>().prop_map(|(origin, arrived, outputs)| EdgeMessage::Answer {
                origin,
                arrived,
                outputs
            }),
        ]
    }

    proptest! {
        #[test]
        fn headers_survive_encoding(unit: u32, message in message()) {
            let header = Header { unit, message };
            prop_assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        }

        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes: [u8; HEADER_BYTES], kind in 0u8..9, small: bool) {
            let mut bytes = bytes;
            if small {
                bytes[0] = kind;
            }
            let is_known = (1..=6).contains(&bytes[0]) && (bytes[0] != QUERY || bytes[1] != 0);
            prop_assert_eq!(Header::decode(&bytes).is_ok(), is_known);
        }
    }
}
