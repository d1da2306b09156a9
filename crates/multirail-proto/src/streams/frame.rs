//! The frames of byte streams, inside the messages of a session.
//!
//! ```text
//! DATA    kind=1 flags length:u16 stream:u48 offset:u48    payload: length bytes
//! CREDIT  kind=2 0     0:u16      stream:u48 limit:u48
//! RESET   kind=3 code  0:u16      stream:u48 0:u48
//! ```
//!
//! A message has any number of frames, one after another. Integers are little-endian.

use super::stream_id::StreamId;
use super::violation::StreamViolation;

/// Bytes of every header.
pub(super) const HEADER_BYTES: usize = 16;
/// The most bytes of one DATA frame.
pub(super) const MAX_DATA_BYTES: usize = u16::MAX as usize;
/// Streams have numbers and offsets of 48 bits.
pub(super) const U48_MAX: u64 = (1 << 48) - 1;

const DATA: u8 = 1;
const CREDIT: u8 = 2;
const RESET: u8 = 3;
/// DATA: these are the last bytes of the stream.
const FLAG_END: u8 = 1;

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFrame<'a> {
    /// Bytes of a stream. The first frame of a stream opens it.
    Data { stream: StreamId, offset: u64, bytes: &'a [u8], is_end: bool },
    /// The receiver has room up to `limit`.
    Credit { stream: StreamId, limit: u64 },
    /// The stream is over, in both directions.
    Reset { stream: StreamId, code: u8 },
}

impl<'a> StreamFrame<'a> {
    /// Appends the frame to a message.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Data { stream, offset, bytes, is_end } => {
                out.extend_from_slice(&data_header(stream, offset, bytes.len(), is_end));
                out.extend_from_slice(bytes);
            }
            Self::Credit { stream, limit } => out.extend_from_slice(&header(CREDIT, 0, 0, stream, limit)),
            Self::Reset { stream, code } => out.extend_from_slice(&header(RESET, code, 0, stream, 0)),
        }
    }

    /// The first frame of `message`, and what follows it.
    pub(super) fn decode(message: &'a [u8]) -> Result<(Self, &'a [u8]), StreamViolation> {
        let (header, rest) = message.split_first_chunk::<HEADER_BYTES>().ok_or(StreamViolation::Cut)?;
        let [kind, flags, low, high, numbers @ ..] = *header;
        let length = usize::from(u16::from_le_bytes([low, high]));
        let (stream, last) = (StreamId::from_number(u48(&numbers[..6])), u48(&numbers[6..]));
        match kind {
            DATA if flags & !FLAG_END == 0 => {
                let (bytes, rest) = rest.split_at_checked(length).ok_or(StreamViolation::Cut)?;
                Ok((Self::Data { stream, offset: last, bytes, is_end: flags & FLAG_END != 0 }, rest))
            }
            CREDIT if flags == 0 && length == 0 => Ok((Self::Credit { stream, limit: last }, rest)),
            RESET if length == 0 && last == 0 => Ok((Self::Reset { stream, code: flags }, rest)),
            DATA | CREDIT | RESET => Err(StreamViolation::BadField { kind }),
            _ => Err(StreamViolation::UnknownKind { kind }),
        }
    }
}

/// The header of a DATA frame, before its `length` bytes.
pub(super) fn data_header(stream: StreamId, offset: u64, length: usize, is_end: bool) -> [u8; HEADER_BYTES] {
    debug_assert!(length <= MAX_DATA_BYTES);
    header(DATA, if is_end { FLAG_END } else { 0 }, length as u16, stream, offset)
}

fn header(kind: u8, flags: u8, length: u16, stream: StreamId, last: u64) -> [u8; HEADER_BYTES] {
    let mut header = [kind, flags, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&length.to_le_bytes());
    header[4..10].copy_from_slice(&stream.number().to_le_bytes()[..6]);
    header[10..].copy_from_slice(&last.to_le_bytes()[..6]);
    header
}

fn u48(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..6].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(
            number in 0..=U48_MAX, last in 0..=U48_MAX, code: u8, is_end: bool,
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let stream = StreamId::from_number(number);
            let frames = [
                StreamFrame::Data { stream, offset: last, bytes: &payload, is_end },
                StreamFrame::Credit { stream, limit: last },
                StreamFrame::Reset { stream, code },
            ];
            let mut message = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut message));
            let mut rest = &message[..];
            for frame in frames {
                let (read, after) = StreamFrame::decode(rest).expect("it is valid");
                prop_assert_eq!(read, frame);
                rest = after;
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_a_frame_or_a_violation(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((frame, rest)) = StreamFrame::decode(&bytes) {
                let mut again = Vec::new();
                frame.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
