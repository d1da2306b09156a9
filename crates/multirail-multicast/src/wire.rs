//! The messages between the hosts of a group.
//!
//! The coordinator's session to a host carries one [`Invite`], then [`FromHost`] and [`ToHost`]. A
//! session between two members is a *link*. Every message on a link is a frame of one of three
//! kinds, given by its first byte:
//!
//! - control: any number of [`ControlItem`]s;
//! - block: transfer, piece, offset (4 bytes each, little-endian), then the bytes. The blocks of a
//!   piece come in order, and the next piece begins when one is complete, so that a receiver needs
//!   room for one;
//! - manifest: a [`ManifestHead`], the manifest, and the data itself if it is short.

use crate::pass::Pass;
use multirail_net::error::{Error, Result};
use multirail_net::payload::VecSink;
use multirail_net::session::{COPY_LIMIT_BYTES, Receiver, Sender};
#[cfg(doc)]
use multirail_proto::multicast::coordinator::survey;
use multirail_proto::multicast::member::{ControlItem, LinkEnds};
use multirail_proto::multicast::{Bandwidths, MemberId, Method};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest invitation: 65,536 hosts with names of 50 bytes.
pub(crate) const MAX_INVITE_BYTES: u64 = 4 << 20;
/// The longest of the other messages on the coordinator's session.
pub(crate) const MAX_STATUS_BYTES: u64 = 1 << 20;
/// The longest manifest, in bytes.
pub(crate) const MAX_MANIFEST_BYTES: usize = 32 << 20;
/// Data of up to this length travels with its manifest.
pub(crate) const MAX_INLINE_BYTES: u64 = 64 << 10;
/// The longest frame: a manifest, its head, and the data.
pub(crate) const MAX_FRAME_BYTES: u64 = MAX_MANIFEST_BYTES as u64 + MAX_INLINE_BYTES + (1 << 20);
/// The approximate length up to which items are put into one control frame.
pub(crate) const CONTROL_FRAME_BYTES: usize = 48 << 10;

/// The name of a group, which cannot be guessed.
pub(crate) type GroupId = [u8; 16];

/// The request that begins a host's part in a group. The coordinator's next message is the
/// invitation, which may be longer than a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct InviteRequest {
    pub(crate) group: GroupId,
}

/// Everything that a host needs to know about its group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Invite {
    /// The members that are known now. The root's address is the one at which this host reaches it.
    pub hosts: Vec<InviteHost>,
    /// The number of the receiving host.
    pub me: MemberId,
    pub root: MemberId,
    pub method: Method,
    pub bandwidths: Option<Bandwidths>,
    /// The destination below the served folder; `None`: into memory.
    pub destination: Option<Vec<u8>>,
    /// Whether files are on the disk before the host is complete.
    pub sync: bool,
    /// The id of the only manifest that members accept. `None`: there will be several.
    pub manifest: Option<[u8; 32]>,
    pub seed: u64,
    /// By which the other members know the receiving host.
    pub pass: Pass,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct InviteHost {
    pub address: String,
    pub cluster: u32,
}

/// The request of a host that joins by a ticket. The answer is a [`JoinReply`]; then the session is like
/// that of a host which was invited.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    pub(crate) group: GroupId,
    /// The port at which the host listens for other members.
    pub(crate) port: u16,
    /// The number that the host had before it lost the coordinator.
    pub(crate) me: Option<MemberId>,
}

/// The answer to a [`JoinRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum JoinReply {
    /// The host takes part.
    Invite(Box<Invite>),
    /// The host does not take part, and why.
    Refused(String),
}

/// From a coordinator to a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToHost {
    /// Every host has what it can get: end the links and forget the group.
    Leave,
    /// All transfers below this number are over.
    Over(u32),
    /// The broadcast is cancelled.
    Abort(String),
    /// Measure round trips to these members for a round of the survey.
    Measure {
        /// The number of the round.
        round: u32,
        /// At most [`survey::MAX_TARGETS`].
        targets: Vec<MemberId>,
    },
    /// The cluster of each member is now known to be this one, and hosts may have joined.
    Regroup {
        clusters: Vec<u32>,
        /// The number of the first member that joined after the group had begun.
        first: MemberId,
        /// The members from `first` on.
        joined: Vec<InviteHost>,
    },
}

/// From a host to its coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum FromHost {
    /// The host takes part.
    Joined,
    /// The host does not take part, and will not.
    Refused(String),
    /// The host's progress, about every second and whenever something ends.
    Status(Status),
    /// The host cannot go on, and why.
    Failed(String),
    /// The host leaves of its own accord.
    Leaving,
    /// The answer to [`ToHost::Measure`].
    Measured {
        /// The number of the round.
        round: u32,
        /// In microseconds, in the order of the targets; `None`: not reached.
        rtts_us: Vec<Option<u32>>,
    },
}

/// The progress of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The number of the broadcast within the group; `None`: none has begun here.
    pub transfer: Option<u32>,
    /// Bytes of verified pieces.
    pub held_bytes: u64,
    /// The part of `held_bytes` that an earlier attempt left behind.
    pub resumed_bytes: u64,
    /// Payload bytes received from each member that has sent any.
    pub received_bytes: Vec<(MemberId, u64)>,
    /// Whether every piece is stored under its final name.
    pub done: bool,
    /// The peers that were disconnected, and why. Every status carries all of them.
    pub complaints: Vec<(MemberId, String)>,
}

/// The first message on a session between two members.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PeerHello {
    pub(crate) group: GroupId,
    pub(crate) from: MemberId,
    pub(crate) ends: LinkEnds,
    /// That of `from`.
    pub(crate) pass: Pass,
}

/// The answer to a [`PeerHello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum PeerReply {
    /// The session is a link from here on. The pass is that of the answering member.
    Welcome(LinkEnds, Pass),
    /// A link between the two exists, or one that the other host is making is kept.
    Duplicate,
    /// The host does not know the group.
    UnknownGroup,
    /// The host accepts no link from this peer.
    Refused(String),
}

/// The head of a manifest frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ManifestHead {
    pub transfer: u32,
    /// The tree positions whose children the receiver forwards the manifest to.
    pub positions: Vec<u32>,
    pub manifest_bytes: u32,
}

/// The first byte of each kind of frame.
pub(crate) mod tag {
    pub(crate) const CONTROL: u8 = 0;
    pub(crate) const BLOCK: u8 = 1;
    pub(crate) const MANIFEST: u8 = 2;
}

/// The head of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub transfer: u32,
    pub piece: u32,
    pub offset: u32,
}

impl BlockHead {
    pub(crate) const BYTES: usize = 13;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [tag::BLOCK; Self::BYTES];
        bytes[1..5].copy_from_slice(&self.transfer.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.piece.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Decodes a head whose first byte was checked.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { transfer: word(1), piece: word(5), offset: word(9) }
    }
}

/// The most bytes of a piece in one frame. A session copies this much, so that sending does not
/// wait for the confirmation.
pub(crate) const MAX_BLOCK_BYTES: u32 = COPY_LIMIT_BYTES as u32 - BlockHead::BYTES as u32;

/// The length of all blocks but the last of a piece of `piece_bytes`. The parts are equal, so that
/// the last one is not tiny.
pub(crate) fn block_bytes(piece_bytes: u32) -> u32 {
    let blocks = piece_bytes.div_ceil(MAX_BLOCK_BYTES).max(1);
    piece_bytes.div_ceil(blocks).max(1)
}

/// A manifest frame.
pub(crate) fn manifest_frame(head: &ManifestHead, manifest: &[u8], data: &[u8]) -> Result<Vec<u8>> {
    let mut frame = postcard::to_extend(head, vec![tag::MANIFEST]).map_err(unencodable)?;
    frame.extend_from_slice(manifest);
    frame.extend_from_slice(data);
    Ok(frame)
}

/// The parts of a manifest frame: head, manifest, data.
pub(crate) fn split_manifest(frame: &[u8]) -> Result<(ManifestHead, &[u8], &[u8])> {
    let bad = || Error::Protocol("an invalid manifest frame".to_owned());
    let (head, rest): (ManifestHead, _) =
        postcard::take_from_bytes(frame.get(1..).ok_or_else(bad)?).map_err(|_| bad())?;
    let (manifest, data) = rest.split_at_checked(head.manifest_bytes as usize).ok_or_else(bad)?;
    Ok((head, manifest, data))
}

/// Appends an item to a control frame.
pub(crate) fn put_item(item: &ControlItem, frame: Vec<u8>) -> Result<Vec<u8>> {
    postcard::to_extend(item, frame).map_err(unencodable)
}

/// Takes the next item off a control frame, which is not at its end.
pub(crate) fn take_item(frame: &mut &[u8]) -> Result<ControlItem> {
    let (item, rest) =
        postcard::take_from_bytes(frame).map_err(|_| Error::Protocol("an invalid control item".to_owned()))?;
    *frame = rest;
    Ok(item)
}

/// Sends a body as one message.
pub(crate) async fn send_body<T: Serialize>(sender: &mut Sender, body: &T) -> Result<()> {
    sender.send(&postcard::to_allocvec(body).map_err(unencodable)?).await
}

/// Receives one message of at most `limit_bytes` as a body.
pub(crate) async fn receive_body<T: DeserializeOwned>(receiver: &mut Receiver, limit_bytes: u64) -> Result<T> {
    let mut sink = VecSink::new(limit_bytes);
    match receiver.recv_into(&mut sink).await {
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            return Err(Error::Protocol(format!("a message of {message_bytes} bytes")));
        }
        received => received?,
    };
    match postcard::take_from_bytes(&sink.bytes) {
        Ok((body, [])) => Ok(body),
        _ => Err(Error::Protocol("an invalid message".to_owned())),
    }
}

/// Reads arbitrary bytes as a frame of a link, and as each message of a session: for fuzzing.
#[doc(hidden)]
pub fn read_any(bytes: &[u8]) {
    match bytes.split_first() {
        Some((&tag::CONTROL, mut items)) => {
            while !items.is_empty() {
                let before = items.len();
                let Ok(item) = take_item(&mut items) else { break };
                assert!(items.len() < before, "an item of no bytes");
                let encoded = put_item(&item, Vec::new()).expect("it was decoded");
                assert_eq!(take_item(&mut &encoded[..]).expect("it was encoded"), item);
            }
        }
        Some((&tag::BLOCK, rest)) => {
            if let Some((head, _)) = bytes.split_first_chunk() {
                let head = BlockHead::decode(head);
                assert_eq!(head.encode()[1..], rest[..BlockHead::BYTES - 1]);
            }
        }
        Some((&tag::MANIFEST, _)) => {
            if let Ok((head, manifest, data)) = split_manifest(bytes) {
                assert!(manifest.len() + data.len() < bytes.len() && manifest.len() == head.manifest_bytes as usize);
            }
        }
        _ => {}
    }
    let _ = postcard::from_bytes::<Invite>(bytes).map(|invite| {
        let cluster_of = invite.hosts.iter().map(|host| host.cluster).collect();
        multirail_proto::multicast::Members::new(cluster_of, invite.root)
    });
    let _ = postcard::from_bytes::<ToHost>(bytes);
    let _ = postcard::from_bytes::<FromHost>(bytes);
    let _ = postcard::from_bytes::<JoinReply>(bytes);
    let _ = postcard::from_bytes::<PeerReply>(bytes);
}

fn unencodable(error: postcard::Error) -> Error {
    Error::Protocol(format!("a message cannot be encoded: {error}"))
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
    fn heads_survive_encoding() {
        let head = BlockHead { transfer: 1, piece: 0x0203_0405, offset: u32::MAX };
        assert_eq!(BlockHead::decode(&head.encode()), head);
        let head = ManifestHead { transfer: 3, positions: vec![1, 300], manifest_bytes: 2 };
        let frame = manifest_frame(&head, b"ab", b"cde").unwrap();
        let (back, manifest, data) = split_manifest(&frame).unwrap();
        assert_eq!((back.transfer, back.positions, manifest, data), (3, vec![1, 300], &b"ab"[..], &b"cde"[..]));
        assert!(split_manifest(&frame[..4]).is_err());
        assert!(split_manifest(&[]).is_err());
    }
}
