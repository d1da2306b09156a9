//! The bytes on a connection.
//!
//! A *data channel* carries frames: a fixed header and, for most kinds, payload. A header has 16
//! bytes and announces a whole run ([decision 1](../../../docs/decisions/0001-headers-by-run.md)).
//! A message that is one run has a header of 8 bytes, since 16 bytes would be a measurable share of
//! a small message on a slow rail. *Start* of the two-ended strategy has 32, and each further
//! fragment one marker byte: the paper (section 4.1) does not say how a receiver distinguishes a
//! fragment from the next control message.
//!
//! ```text
//! RUN       kind=1 0     message:u32 length:u32 offset:u48          payload: length bytes
//! OPEN      kind=2 flags message:u32 0:u16      total:u64           once per channel and message
//! PAD       kind=3 0     0:u32       length:u32 0:u48               payload: length bytes, thrown away
//! START     kind=4 flags message:u32 fragment:u32 0:u48 offset:u64 total:u64    payload: one fragment
//! CONTINUE  kind=5                                                  payload: the next fragment
//! END       kind=6 0     message:u32 0:u80
//! WHOLE     kind=7 flags message:u16 length:u32                     payload: a message
//! ```
//!
//! Integers are little-endian. The *control connection* and the handshake carry [`packet`]s: a
//! length and a postcard body.

use crate::striping::Direction;
use serde::{Deserialize, Serialize};

/// Bytes of every frame header except *Whole*, *Start* and *Continue*.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a *Whole* header.
pub(crate) const WHOLE_BYTES: usize = 8;
/// Bytes of a *Start* header.
pub(crate) const START_BYTES: usize = 32;
/// The most header bytes before one run's payload: End, Open and Run, or End and Start.
pub const MAX_HEAD_BYTES: usize = HEADER_BYTES + START_BYTES;
/// The longest message: offsets have 48 bits.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 47;
/// The longest run.
pub(crate) const MAX_RUN_LENGTH: u32 = 1 << 31;
/// The longest control packet; it is checked before anything is allocated.
pub const MAX_PACKET_BYTES: usize = 64 << 10;

const RUN: u8 = 1;
const OPEN: u8 = 2;
const PAD: u8 = 3;
const START: u8 = 4;
const CONTINUE: u8 = 5;
const END: u8 = 6;
const WHOLE: u8 = 7;
/// The sender waits until the message is confirmed.
const FLAG_CONFIRM: u8 = 1;
/// Start: from right to left.
const FLAG_DECREMENT: u8 = 2;

/// One header on a data channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// `length` bytes of `message` from `offset` on follow.
    Run {
        /// Serial number of the message within the session and direction.
        message: u32,
        /// The offset of the bytes in the message.
        offset: u64,
        /// The number of bytes that follow.
        length: u32,
    },
    /// All bytes of a message follow, without an Open before.
    Whole {
        /// The lower half of the message's serial number. It is unique among the messages that can
        /// be in transit.
        message_low: u16,
        /// Its length.
        length: u32,
        /// The sender waits for this message to be confirmed.
        confirm: bool,
    },
    /// Runs of `message` follow on this channel, and it is `total_bytes` long.
    Open {
        /// Serial number of the message.
        message: u32,
        /// Its length.
        total_bytes: u64,
        /// The sender waits for this message to be confirmed.
        confirm: bool,
    },
    /// `length` bytes without meaning follow, for a measurement.
    Pad {
        /// The number of bytes that follow.
        length: u32,
    },
    /// The paper's *Start*: fragments of `message` follow from `offset` on in this direction; the
    /// first follows at once.
    Start {
        /// Serial number of the message.
        message: u32,
        /// The paper's *counterMode*.
        direction: Direction,
        /// Length of a fragment; the message's last one may be shorter.
        fragment_bytes: u32,
        /// The offset of the first fragment.
        offset: u64,
        /// Length of the message.
        total_bytes: u64,
        /// The sender waits for this message to be confirmed.
        confirm: bool,
    },
    /// The next fragment in the announced direction follows.
    Continue,
    /// The paper's *End*: no more bytes of `message` follow on this channel.
    End {
        /// Serial number of the message.
        message: u32,
    },
}

/// Why a received frame or packet is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The kind is unknown.
    #[error("unknown frame kind {0:#04x}")]
    UnknownKind(u8),
    /// A field is out of its bounds.
    #[error("{field} of {value} in a {frame} frame is out of bounds")]
    OutOfBounds {
        /// The frame.
        frame: &'static str,
        /// The field.
        field: &'static str,
        /// The value.
        value: u64,
    },
    /// A control packet is too long.
    #[error("a control packet of {0} bytes is too long")]
    PacketTooLong(u64),
    /// A control packet cannot be parsed.
    #[error("a control packet cannot be parsed")]
    BadPacket,
}

impl Frame {
    /// Writes the header to the start of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than the header, which is a bug of the caller.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let size = self.encoded_bytes();
        let out = &mut out[..size];
        out.fill(0);
        match *self {
            Frame::Run { message, offset, length } => {
                out[0] = RUN;
                out[2..6].copy_from_slice(&message.to_le_bytes());
                out[6..10].copy_from_slice(&length.to_le_bytes());
                out[10..16].copy_from_slice(&offset.to_le_bytes()[..6]);
            }
            Frame::Open { message, total_bytes, confirm } => {
                out[0] = OPEN;
                out[1] = flag(confirm, FLAG_CONFIRM);
                out[2..6].copy_from_slice(&message.to_le_bytes());
                out[8..16].copy_from_slice(&total_bytes.to_le_bytes());
            }
            Frame::Pad { length } => {
                out[0] = PAD;
                out[6..10].copy_from_slice(&length.to_le_bytes());
            }
            Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm } => {
                out[0] = START;
                out[1] = flag(direction == Direction::Decrement, FLAG_DECREMENT) | flag(confirm, FLAG_CONFIRM);
                out[2..6].copy_from_slice(&message.to_le_bytes());
                out[6..10].copy_from_slice(&fragment_bytes.to_le_bytes());
                out[16..24].copy_from_slice(&offset.to_le_bytes());
                out[24..32].copy_from_slice(&total_bytes.to_le_bytes());
            }
            Frame::Whole { message_low, length, confirm } => {
                out[0] = WHOLE;
                out[1] = flag(confirm, FLAG_CONFIRM);
                out[2..4].copy_from_slice(&message_low.to_le_bytes());
                out[4..8].copy_from_slice(&length.to_le_bytes());
            }
            Frame::Continue => out[0] = CONTINUE,
            Frame::End { message } => {
                out[0] = END;
                out[2..6].copy_from_slice(&message.to_le_bytes());
            }
        }
        size
    }

    /// Length of the header.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Frame::Start { .. } => START_BYTES,
            Frame::Whole { .. } => WHOLE_BYTES,
            Frame::Continue => 1,
            _ => HEADER_BYTES,
        }
    }

    /// Reads a header from the start of `bytes`: the frame and its length, or `None` while it is
    /// incomplete.
    ///
    /// # Errors
    ///
    /// [`WireError`], if the bytes cannot be the beginning of one.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, WireError> {
        let Some(&kind) = bytes.first() else { return Ok(None) };
        let size = match kind {
            RUN | OPEN | PAD | END => HEADER_BYTES,
            START => START_BYTES,
            WHOLE => WHOLE_BYTES,
            CONTINUE => return Ok(Some((Frame::Continue, 1))),
            other => return Err(WireError::UnknownKind(other)),
        };
        let Some(header) = bytes.get(..size) else { return Ok(None) };
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let confirm = header[1] & FLAG_CONFIRM != 0;
        if kind == WHOLE {
            let (message_low, length) = (u16::from_le_bytes([header[2], header[3]]), u32_at(4));
            bounded("whole", "length", u64::from(length), 0, u64::from(MAX_RUN_LENGTH))?;
            return Ok(Some((Frame::Whole { message_low, length, confirm }, size)));
        }
        let message = u32_at(2);
        let frame = match kind {
            RUN => {
                let offset = u64_at(8) >> 16;
                let length = u32_at(6);
                bounded("run", "length", u64::from(length), 0, u64::from(MAX_RUN_LENGTH))?;
                bounded("run", "offset", offset, 0, MAX_MESSAGE_BYTES - u64::from(length))?;
                Frame::Run { message, offset, length }
            }
            OPEN => {
                let total_bytes = u64_at(8);
                bounded("open", "total", total_bytes, 1, MAX_MESSAGE_BYTES)?;
                Frame::Open { message, total_bytes, confirm }
            }
            PAD => {
                let length = u32_at(6);
                bounded("pad", "length", u64::from(length), 0, u64::from(MAX_RUN_LENGTH))?;
                Frame::Pad { length }
            }
            START => {
                let (fragment_bytes, offset, total_bytes) = (u32_at(6), u64_at(16), u64_at(24));
                bounded("start", "total", total_bytes, 1, MAX_MESSAGE_BYTES)?;
                bounded("start", "offset", offset, 0, total_bytes - 1)?;
                bounded("start", "fragment", u64::from(fragment_bytes), 1, u64::from(MAX_RUN_LENGTH))?;
                let decrement = header[1] & FLAG_DECREMENT != 0;
                let direction = if decrement { Direction::Decrement } else { Direction::Increment };
                Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm }
            }
            _ => Frame::End { message },
        };
        Ok(Some((frame, size)))
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn bounded(frame: &'static str, field: &'static str, value: u64, least: u64, most: u64) -> Result<(), WireError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(WireError::OutOfBounds { frame, field, value }) }
}

/// Length-prefixed postcard bodies: the handshake and the control connection.
pub mod packet {
    use super::{MAX_PACKET_BYTES, WireError};
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    /// Bytes of the length before a body.
    pub const PREFIX_BYTES: usize = 4;

    /// Appends `body` with its length to `out`.
    ///
    /// # Panics
    /// If the body is longer than [`MAX_PACKET_BYTES`]: the caller bounds its lists.
    pub fn encode<T: Serialize>(body: &T, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; PREFIX_BYTES]);
        let bytes = postcard::to_allocvec(body).expect("plain data serializes");
        assert!(bytes.len() <= MAX_PACKET_BYTES, "a control packet of {} bytes", bytes.len());
        out.extend_from_slice(&bytes);
        let length = bytes.len() as u32;
        out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    }

    /// The length of the body that follows, from its first four bytes. A length above `most` is
    /// refused.
    ///
    /// # Errors
    ///
    /// [`WireError`], if the body is longer than `most`.
    pub fn body_bytes(prefix: [u8; PREFIX_BYTES], most: usize) -> Result<usize, WireError> {
        let length = u32::from_le_bytes(prefix) as usize;
        if length > most { Err(WireError::PacketTooLong(length as u64)) } else { Ok(length) }
    }

    /// Reads a body from the start of `bytes`: the value and its length, or `None` while it is
    /// incomplete.
    ///
    /// # Errors
    ///
    /// [`WireError`], if the bytes cannot be the beginning of one.
    pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, WireError> {
        let Some(prefix) = bytes.first_chunk() else { return Ok(None) };
        let length = body_bytes(*prefix, MAX_PACKET_BYTES)?;
        let Some(body) = bytes.get(PREFIX_BYTES..PREFIX_BYTES + length) else { return Ok(None) };
        Ok(Some((decode_body(body)?, PREFIX_BYTES + length)))
    }

    /// Reads a body whose length is known.
    ///
    /// # Errors
    ///
    /// [`WireError`], if the bytes are no such body.
    pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
        match postcard::take_from_bytes(body) {
            Ok((value, [])) => Ok(value),
            _ => Err(WireError::BadPacket),
        }
    }
}

/// Packets of the control connection in an established session. All are cumulative or repeatable,
/// so that a lost control connection loses nothing: the next one repeats them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// What the receiver has received.
    Report(Report),
    /// The ports of the sender of this packet that the other side may dial.
    Ports(Vec<Port>),
    /// The sender has finished: it has sent `messages` messages in all, and will send no more.
    Close {
        /// The serial number of a next message.
        messages: u32,
    },
    /// The sender gives up, with the reason.
    Abort {
        /// The reason as text.
        reason: String,
    },
}

/// What the receiver has received: the ledger for the sender.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Every message with a lower serial number is complete.
    pub completed_below: u32,
    /// Whether the other side's Close has arrived.
    pub close_heard: bool,
    /// One row for each channel with changes.
    pub channels: Vec<ChannelReport>,
}

/// One channel's row in a [`Report`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// The channel's id.
    pub channel: u32,
    /// Bytes read from the channel since it was opened, including headers.
    pub position: u64,
    /// Bytes that arrived within a run since the last report.
    pub busy_bytes: u64,
    /// The time that they took, in microseconds.
    pub busy_us: u64,
}

/// A port of a host, as it is sent to the other side.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Port {
    /// The interface's name, for display.
    pub name: String,
    /// Its index on its host: addresses with the same index share a port.
    pub index: u32,
    /// One of its addresses.
    pub address: std::net::IpAddr,
    /// Length of the address's network prefix.
    pub prefix_bits: u8,
    /// The speed that the hardware reports; 0 if it does not.
    pub speed_mbit_s: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let run = (any::<u32>(), 0..1u64 << 40, 0..1u32 << 20).prop_map(|(message, offset, length)| Frame::Run {
            message,
            offset,
            length,
        });
        let whole = (any::<u16>(), 0..1u32 << 20, any::<bool>())
            .prop_map(|(message_low, length, confirm)| Frame::Whole { message_low, length, confirm });
        let open = (any::<u32>(), 1..MAX_MESSAGE_BYTES, any::<bool>())
            .prop_map(|(message, total_bytes, confirm)| Frame::Open { message, total_bytes, confirm });
        let start = (any::<u32>(), any::<bool>(), 1..1u32 << 20, 0..1u64 << 40).prop_map(
            |(message, d, fragment_bytes, offset)| {
                let direction = if d { Direction::Increment } else { Direction::Decrement };
                Frame::Start { message, direction, fragment_bytes, offset, total_bytes: offset + 1, confirm: d }
            },
        );
        let pad = (0..1u32 << 20).prop_map(|length| Frame::Pad { length });
        let end = any::<u32>().prop_map(|message| Frame::End { message });
        prop_oneof![run, whole, open, start, pad, end, Just(Frame::Continue)]
    }

    proptest! {
        #[test]
        fn frames_read_back(frame in frames()) {
            let mut bytes = [0xff; START_BYTES];
            let n = frame.encode(&mut bytes);
            prop_assert_eq!(Frame::decode(&bytes), Ok(Some((frame, n))));
            for short in 0..n {
                prop_assert_eq!(Frame::decode(&bytes[..short]), Ok(None));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Frame::decode(&bytes);
            let _ = packet::decode::<Control>(&bytes);
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let mut bytes = [0; HEADER_BYTES];
        for (length, fits) in [(MAX_RUN_LENGTH, true), (MAX_RUN_LENGTH + 1, false)] {
            let whole = Frame::Whole { message_low: 0, length, confirm: false };
            for frame in [Frame::Run { message: 0, offset: 0, length }, whole] {
                frame.encode(&mut bytes);
                assert_eq!(Frame::decode(&bytes).is_ok(), fits, "{frame:?}");
            }
        }
        let long = (MAX_PACKET_BYTES as u32 + 1).to_le_bytes();
        assert_eq!(packet::decode::<Control>(&long), Err(WireError::PacketTooLong(MAX_PACKET_BYTES as u64 + 1)));
    }

    #[test]
    fn control_reads_back() {
        let report = Control::Report(Report {
            completed_below: 7,
            close_heard: true,
            channels: vec![ChannelReport { channel: 1, position: 1 << 40, busy_bytes: 5, busy_us: 6 }],
        });
        let mut bytes = Vec::new();
        packet::encode(&report, &mut bytes);
        assert_eq!(packet::decode(&bytes), Ok(Some((report, bytes.len()))));
    }
}
