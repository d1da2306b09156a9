//! What a member is configured with, what its driver carries out, and what it reports.

use super::item::{ControlItem, LinkEnds};
use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::{MemberId, Members};
use crate::multicast::method_name::Method;
use std::sync::Arc;

/// What a member knows from the invitation to its group.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// The number of this host.
    pub me: MemberId,
    /// The hosts of the group that are known at first, in the clusters that are known at first.
    pub members: Arc<Members>,
    /// The method of every broadcast in the group.
    pub method: Method,
    /// The bandwidths between clusters, for methods that plan with them.
    pub bandwidths: Option<Bandwidths>,
    /// The seed of all random choices, the same on every host.
    pub seed: u64,
    /// A number that differs each time a host joins a group. See [`LinkEnds`].
    pub incarnation: u64,
    /// How long a peer may leave requests unanswered before its link ends, in microseconds.
    pub answer_timeout_us: u64,
}

impl MemberConfig {
    /// The default of [`MemberConfig::answer_timeout_us`]: 20 s.
    pub const ANSWER_TIMEOUT_US: u64 = 20_000_000;
}

/// Something the driver carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a session to this member. Answered by
    /// [`Member::handle_link_up`](super::Member::handle_link_up) or
    /// [`Member::handle_dial_failed`](super::Member::handle_dial_failed).
    Dial(MemberId),
    /// Drop this link with everything that is queued on it.
    EndLink {
        /// The other member.
        peer: MemberId,
        /// The number that `handle_link_up` returned. A newer link to the peer stays.
        link: u64,
    },
    /// Close every link after sending what is queued on it.
    CloseLinks,
    /// Drop every link at once.
    EndLinks,
    /// Send an item, before any piece that is still queued for the peer.
    Send {
        /// The receiver.
        to: MemberId,
        /// The item.
        item: ControlItem,
    },
    /// Send the manifest of a transfer, after control items and before pieces.
    SendManifest {
        /// The receiver.
        to: MemberId,
        /// The number of the broadcast.
        transfer: u32,
        /// The tree positions whose children the receiver forwards the manifest to.
        positions: Vec<u32>,
    },
    /// Queue a piece.
    SendPiece {
        /// The receiver.
        to: MemberId,
        /// The number of the broadcast.
        transfer: u32,
        /// The piece, which this host holds.
        piece: u32,
    },
    /// Remove a piece from the peer's queue unless its first byte was sent.
    Withdraw {
        /// The receiver.
        to: MemberId,
        /// The number of the broadcast.
        transfer: u32,
        /// The piece.
        piece: u32,
    },
    /// Every piece of this transfer is stored: give the files their final names. Answered by
    /// [`Member::handle_finished`](super::Member::handle_finished) or
    /// [`Member::handle_failure`](super::Member::handle_failure).
    Finish(u32),
    /// The status, the membership, or the set of links has changed.
    Publish,
}

/// The answer to a peer that asks for a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The session becomes a link. Carries this host's end.
    Welcome(LinkEnds),
    /// A link exists, or this host's own attempt to make one is kept.
    Duplicate,
    /// No link is possible, and why.
    Refused(String),
}

/// Whether the host takes part in the group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Membership {
    /// The host takes part.
    #[default]
    Active,
    /// The host has left; its links are closing.
    Left,
    /// The host cannot take part, and why.
    Failed(String),
}

/// The progress of the latest broadcast on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferStatus {
    /// The number of the broadcast.
    pub transfer: u32,
    /// Bytes of verified pieces on this host.
    pub held_bytes: u64,
    /// The part of `held_bytes` that an earlier attempt left behind.
    pub resumed_bytes: u64,
    /// Payload bytes received from each member that has sent any.
    pub received_bytes: Vec<(MemberId, u64)>,
    /// Whether every piece is stored under its final name.
    pub is_done: bool,
}
