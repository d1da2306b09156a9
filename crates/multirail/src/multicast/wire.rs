//! What the hosts of a group say to each other.
//!
//! The coordinator's session to a host carries one [`Invite`], then [`FromHost`] and [`ToHost`]. A session between two members is a
//! *link*; every message on it is a frame of one of three kinds, told apart by its first byte:
//!
//! - control: any number of [`Item`]s;
//! - block: transfer, piece, offset (4 bytes each, little-endian), then the bytes. The blocks of a piece come in order, and
//!   another piece begins only when one is whole, so that a receiver needs room for one;
//! - manifest: a [`ManifestHead`], the manifest, and the data itself if it is little.

use crate::error::{Error, Result};
use crate::payload::VecSink;
use crate::session::{COPY_LIMIT_BYTES, Receiver, Sender};
use multirail_proto::multicast::{MemberId, Message, Method};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use multirail_proto::multicast::Bandwidths;

/// No invitation is longer: 65,536 hosts with names of 50 bytes.
pub(super) const MAX_INVITE_BYTES: u64 = 4 << 20;
/// No other message on the coordinator's session is longer.
pub(super) const MAX_STATUS_BYTES: u64 = 1 << 20;
/// Longest manifest, in bytes.
pub(super) const MAX_MANIFEST_BYTES: usize = 32 << 20;
/// Data up to this length travels with its manifest.
pub(super) const MAX_INLINE_BYTES: u64 = 64 << 10;
/// No frame is longer: a manifest, its head, and the data.
pub(super) const MAX_FRAME_BYTES: u64 = MAX_MANIFEST_BYTES as u64 + MAX_INLINE_BYTES + (1 << 20);
/// Items are put into one control frame up to about this length.
pub(super) const CONTROL_FRAME_BYTES: usize = 48 << 10;

/// A group's name: unguessable.
pub(crate) type GroupId = [u8; 16];

/// What begins a host's part in a group. The coordinator's next message is the invitation, which may be longer than a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InviteRequest {
    pub(super) group: GroupId,
}

/// Everything a host must know of its group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Invite {
    /// The members; the root's address is as this host reaches it.
    pub hosts: Vec<InviteHost>,
    /// The receiver's own number.
    pub me: MemberId,
    pub root: MemberId,
    pub method: Method,
    pub bandwidths: Option<Bandwidths>,
    /// Where it goes, below the served folder; `None`: into memory.
    pub destination: Option<Vec<u8>>,
    /// The id of the only manifest there will be, so that no member can bring another one; `None`: there will be several.
    pub manifest: Option<[u8; 32]>,
    pub seed: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InviteHost {
    pub address: String,
    pub cluster: u32,
}

/// A coordinator to a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum ToHost {
    /// Everybody has what they can get: end your links and forget the group.
    Leave,
    /// All transfers below this number are over.
    Over(u32),
    /// The broadcast is called off.
    Abort(String),
}

/// A host to its coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum FromHost {
    /// It takes part.
    Joined,
    /// It does not, and will not.
    Refused(String),
    /// How far it is; about every second, and whenever something ends.
    Status(Status),
    /// It cannot go on, and why.
    Failed(String),
}

/// How far a host is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Status {
    /// The broadcast within the group; `None`: none has begun here.
    pub transfer: Option<u32>,
    /// What it has, verified.
    pub held_bytes: u64,
    /// What it had from an earlier attempt.
    pub resumed_bytes: u64,
    /// Payload that came, by the cluster it came from.
    pub received_bytes: Vec<u64>,
    /// It has everything, under its final name.
    pub done: bool,
    /// Who was shown the door, and why; all of them every time.
    pub complaints: Vec<(MemberId, String)>,
}

/// The first message on a session between two members.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PeerHello {
    pub(super) group: GroupId,
    pub(super) from: MemberId,
    pub(super) ends: Ends,
}

/// What tells a link that came back from one that is there twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ends {
    /// Another one every time that a host begins a group.
    pub incarnation: u64,
    /// How many links to the other it has seen die.
    pub downs: u32,
}

/// The answer to a [`PeerHello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum PeerReply {
    /// The session is a link from here on.
    Welcome(Ends),
    /// There is a link between the two, or one is being made from the other side, which is kept.
    Duplicate,
    /// No such group here.
    UnknownGroup,
    /// You are not welcome.
    Refused(String),
}

/// One thing said in a control frame. The number is the transfer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Item {
    /// The sender knows the manifest and takes part: what its node says comes next.
    Ready(u32),
    /// From node to node.
    Node(u32, Message),
    /// The sender has everything.
    Complete(u32),
    /// The sender is well, and has nothing else to say.
    Alive,
    /// The sender has not got the manifest of anything that goes on.
    Ask,
}

/// What stands before a manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ManifestHead {
    pub transfer: u32,
    /// The places in the tree whose children the receiver passes it on to; empty: it is nobody's turn but the receiver's.
    pub duties: Vec<u32>,
    pub manifest_bytes: u32,
}

/// First byte of each kind of frame.
pub(super) mod tag {
    pub const CONTROL: u8 = 0;
    pub const BLOCK: u8 = 1;
    pub const MANIFEST: u8 = 2;
}

/// What stands before a block's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHead {
    pub transfer: u32,
    pub piece: u32,
    pub offset: u32,
}

impl BlockHead {
    pub const BYTES: usize = 13;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [tag::BLOCK; Self::BYTES];
        bytes[1..5].copy_from_slice(&self.transfer.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.piece.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// From bytes whose first one was looked at.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { transfer: word(1), piece: word(5), offset: word(9) }
    }
}

/// The most bytes of a piece in one frame: what a session copies, so that sending does not wait for the confirmation.
pub(super) const MAX_BLOCK_BYTES: u32 = COPY_LIMIT_BYTES as u32 - BlockHead::BYTES as u32;

/// The length of the blocks of a piece of `piece_bytes`, all but the last: equal parts, so that the last is no crumb.
pub(super) fn block_bytes(piece_bytes: u32) -> u32 {
    let blocks = piece_bytes.div_ceil(MAX_BLOCK_BYTES).max(1);
    piece_bytes.div_ceil(blocks).max(1)
}

/// A manifest frame.
pub(super) fn manifest_frame(head: &ManifestHead, manifest: &[u8], data: &[u8]) -> Result<Vec<u8>> {
    let mut frame = postcard::to_extend(head, vec![tag::MANIFEST]).map_err(unencodable)?;
    frame.extend_from_slice(manifest);
    frame.extend_from_slice(data);
    Ok(frame)
}

/// The parts of a manifest frame: head, manifest, data.
pub(super) fn split_manifest(frame: &[u8]) -> Result<(ManifestHead, &[u8], &[u8])> {
    let bad = || Error::Protocol("a manifest that does not parse".to_owned());
    let (head, rest): (ManifestHead, _) =
        postcard::take_from_bytes(frame.get(1..).ok_or_else(bad)?).map_err(|_| bad())?;
    let (manifest, data) = rest.split_at_checked(head.manifest_bytes as usize).ok_or_else(bad)?;
    Ok((head, manifest, data))
}

/// Appends an item to a control frame.
pub(super) fn put_item(item: &Item, frame: Vec<u8>) -> Result<Vec<u8>> {
    postcard::to_extend(item, frame).map_err(unencodable)
}

/// The next item of a control frame, which is not at its end.
pub(super) fn take_item(frame: &mut &[u8]) -> Result<Item> {
    let (item, rest) = postcard::take_from_bytes(frame)
        .map_err(|_| Error::Protocol("a control item that does not parse".to_owned()))?;
    *frame = rest;
    Ok(item)
}

/// Sends a body as one message.
pub(super) async fn send_body<T: Serialize>(sender: &mut Sender, body: &T) -> Result<()> {
    sender.send(&postcard::to_allocvec(body).map_err(unencodable)?).await
}

/// Receives one message of at most `limit_bytes` as a body.
pub(super) async fn receive_body<T: DeserializeOwned>(receiver: &mut Receiver, limit_bytes: u64) -> Result<T> {
    let mut sink = VecSink::new(limit_bytes);
    match receiver.recv_into(&mut sink).await {
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            return Err(Error::Protocol(format!("a message of {message_bytes} bytes")));
        }
        received => received?,
    };
    match postcard::take_from_bytes(&sink.bytes) {
        Ok((body, [])) => Ok(body),
        _ => Err(Error::Protocol("a message that does not parse".to_owned())),
    }
}

fn unencodable(error: postcard::Error) -> Error {
    Error::Protocol(format!("a message that does not encode: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cut_pieces_into_equal_parts() {
        assert_eq!(block_bytes(16 << 10), 16 << 10);
        assert_eq!(block_bytes(MAX_BLOCK_BYTES), MAX_BLOCK_BYTES);
        assert_eq!(block_bytes(MAX_BLOCK_BYTES + 1), MAX_BLOCK_BYTES / 2 + 1);
        assert_eq!(block_bytes(64 << 10), 32 << 10);
        assert_eq!(block_bytes(1), 1);
        assert_eq!(block_bytes(0), 1);
    }

    #[test]
    fn heads_come_back_as_they_went() {
        let head = BlockHead { transfer: 1, piece: 0x0203_0405, offset: u32::MAX };
        assert_eq!(BlockHead::decode(&head.encode()), head);
        let head = ManifestHead { transfer: 3, duties: vec![1, 300], manifest_bytes: 2 };
        let frame = manifest_frame(&head, b"ab", b"cde").unwrap();
        let (back, manifest, data) = split_manifest(&frame).unwrap();
        assert_eq!((back.transfer, back.duties, manifest, data), (3, vec![1, 300], &b"ab"[..], &b"cde"[..]));
        assert!(split_manifest(&frame[..4]).is_err());
        assert!(split_manifest(&[]).is_err());
    }
}
