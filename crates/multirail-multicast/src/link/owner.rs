//! What a link needs from the member that owns it.

use super::queue::Next;
use crate::pass::Pass;
use crate::store::Store;
use crate::wire::{PeerHello, PeerReply};
use multirail_net::{Config, Error, PublicKey, Session};
use multirail_proto::multicast::MemberId;
use multirail_proto::multicast::member::{ControlItem, Fault, LinkEnds};
use std::fmt::Debug;
use std::sync::Arc;

/// The member that owns a link. It decides; the link carries out. No method waits.
pub(crate) trait LinkOwner: Debug + Send + Sync {
    /// The hello of this host for `peer`.
    fn hello(&self, peer: MemberId) -> PeerHello;
    /// The address of `peer`.
    fn address(&self, peer: MemberId) -> String;
    /// How sessions to other members are made.
    fn session_config(&self) -> &Config;

    /// Whether this host has been told of a member with this number.
    fn knows(&self, peer: MemberId) -> bool;
    /// Whether the peer whose session has proven `key` is this member.
    fn is_member(&self, peer: MemberId, key: PublicKey, pass: &Pass) -> bool;
    /// Decides about a session that `peer` has opened.
    fn admit(&self, peer: MemberId, theirs: LinkEnds) -> PeerReply;
    /// Takes over a session that is now a link, unless the link is no longer wanted.
    fn link_up(&self, peer: MemberId, session: Session, theirs: LinkEnds, dialled: bool);
    /// No link could be made.
    fn dial_failed(&self, peer: MemberId, why: &str);
    /// Link number `link` has ended. `is_fault`: the peer broke the rules.
    fn link_down(&self, peer: MemberId, link: u64, why: &str, is_fault: bool);
    /// This host cannot go on.
    fn fail(&self, why: String);

    /// What link number `link` sends next. `None`: the link is over.
    fn next(&self, peer: MemberId, link: u64) -> Option<Result<Next, Error>>;
    /// `sent_bytes` of the current piece went out; `None`: its last.
    fn advance(&self, peer: MemberId, link: u64, sent_bytes: Option<u32>);
    /// The last byte of a piece went out.
    fn sent(&self, peer: MemberId, transfer: u32, piece: u32);
    /// The store of a transfer and the length of a piece in bytes.
    fn store(&self, transfer: u32, piece: u32) -> Option<(Arc<dyn Store>, u32)>;

    /// A control item arrived.
    fn control_item(&self, peer: MemberId, item: ControlItem) -> Result<(), Fault>;
    /// A manifest frame arrived. An error says what the peer did wrong.
    fn manifest(&self, peer: MemberId, frame: &[u8]) -> Result<(), String>;
    /// A piece begins to arrive. Returns the store that takes it; `None`: it is discarded.
    fn piece_start(&self, peer: MemberId, transfer: u32, piece: u32) -> Result<Option<Arc<dyn Store>>, Fault>;
    /// Bytes of a piece arrived.
    fn bytes_received(&self, peer: MemberId, transfer: u32, bytes: u64);
    /// A piece was verified and stored.
    fn stored(&self, peer: MemberId, transfer: u32, piece: u32);
    /// The bytes for a piece do not have its hash.
    fn bad_piece(&self, peer: MemberId, transfer: u32, piece: u32);

    /// A buffer for a piece, possibly with capacity.
    fn take_buffer(&self) -> Vec<u8>;
    /// Keeps a buffer for the next piece.
    fn put_buffer(&self, buffer: Vec<u8>);
}
