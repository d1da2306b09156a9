//! A host's part in a group: its links, its transfers, and what their nodes decide.
//!
//! Everything is behind one mutex, which is never held while something is read, written, hashed or waited for. Whoever
//! has news (a link that received a piece, the timer) locks it, hands the news to the node, and puts what the node wants
//! into the links' queues. All tasks of a group run in the runtime in which it was made.

mod care;
mod transfers;

use super::link::{self, LinkHandle};
use super::manifest::Manifest;
use super::store::{Store, StoreError};
use super::transfer::{Phase, Transfer};
use super::tree::{self, Errand};
use super::wire::{self, Ends, FromHost, GroupId, InviteHost, Item, ManifestHead, Status};
use crate::{Config, Result};
use multirail_proto::multicast::nodes::early_calls;
use multirail_proto::multicast::{Bandwidths, Input, MemberId, Members, Method};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Transfers that go on in a group at a time.
pub(super) const MAX_TRANSFERS: usize = 64;
/// A session between members outlives its last rail by this much. When a process is killed, all its connections end at once, and what it
/// was to bring waits until then; where only the connections ended, some round trips make another one, here or as a new link.
const LINK_GIVES_UP_AFTER: Duration = Duration::from_millis(500);
/// Text that comes from others is not told on at greater length.
const MAX_COMPLAINTS: usize = 64;

/// How a host opens the store for data it has been told of.
pub(super) type OpenStore = dyn Fn(u32, Arc<Manifest>) -> Result<Arc<dyn Store>, StoreError> + Send + Sync;

/// What a group is told to begin with.
pub(super) struct Setting {
    pub id: GroupId,
    pub hosts: Vec<InviteHost>,
    pub me: MemberId,
    pub members: Members,
    pub method: Method,
    pub bandwidths: Option<Bandwidths>,
    pub seed: u64,
    pub config: Config,
    /// The id of the only manifest that there is, if there is only one.
    pub manifest: Option<[u8; 32]>,
    pub open: Box<OpenStore>,
    /// Is told when everything of a transfer is here and in its place.
    pub done: Box<dyn Fn(u32) + Send + Sync>,
}

/// A host's part in a group.
pub(crate) struct Member {
    pub(super) id: GroupId,
    pub(super) hosts: Vec<InviteHost>,
    pub(super) me: MemberId,
    pub(super) members: Arc<Members>,
    method: Method,
    bandwidths: Option<Bandwidths>,
    seed: u64,
    pub(super) config: Config,
    manifest: Option<[u8; 32]>,
    open: Box<OpenStore>,
    done: Box<dyn Fn(u32) + Send + Sync>,
    incarnation: u64,
    began: Instant,
    runtime: tokio::runtime::Handle,
    core: Mutex<Core>,
    timer: Notify,
    /// Counts changes that others may wait for.
    changed: watch::Sender<u64>,
    /// Buffers for pieces that are arriving: links need them at times only.
    pub(super) buffers: link::Buffers,
}

#[derive(Default)]
struct Core {
    links: BTreeMap<MemberId, LinkHandle>,
    dialling: BTreeSet<MemberId>,
    /// Manifests for hosts that are being dialled.
    errands: BTreeMap<MemberId, Vec<(u32, Errand)>>,
    downs: BTreeMap<MemberId, u32>,
    /// Those that have been silent once.
    silent: BTreeSet<MemberId>,
    /// Those that this host has nothing to do with any more.
    banned: BTreeSet<MemberId>,
    complaints: Vec<(MemberId, String)>,
    /// Who has told that they have everything, by transfer.
    complete: BTreeMap<u32, BTreeSet<MemberId>>,
    transfers: BTreeMap<u32, Transfer>,
    /// Transfers below this number are forgotten.
    over_below: u32,
    /// When nodes will be woken.
    timer_at_us: Option<u64>,
    links_ever: u64,
    asked: u32,
    heard: Option<Instant>,
    state: State,
}

/// Whether the host takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It does.
    #[default]
    Member,
    /// It does not any more: links are being ended.
    Left,
    /// It cannot, and why.
    Failed(String),
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Member {
    /// Begins a host's part, in the runtime that calls.
    pub fn begin(setting: Setting) -> Arc<Self> {
        let Setting { id, hosts, me, members, method, bandwidths, seed, config, manifest, open, done } = setting;
        let mut incarnation = [0; 8];
        let _ = getrandom::fill(&mut incarnation);
        // The links of all hosts share the paths: one channel more of one of them would take from the others, and be probed.
        let channels_per_rail = if config.channels_per_rail == Config::AUTO { 1 } else { config.channels_per_rail };
        let member = Arc::new(Self {
            id,
            hosts,
            me,
            members: Arc::new(members),
            method,
            bandwidths,
            seed,
            config: Config { give_up_after: LINK_GIVES_UP_AFTER, channels_per_rail, ..config },
            manifest,
            open,
            done,
            incarnation: u64::from_le_bytes(incarnation),
            began: Instant::now(),
            runtime: tokio::runtime::Handle::current(),
            core: Mutex::default(),
            timer: Notify::new(),
            changed: watch::Sender::new(0),
            buffers: link::Buffers::default(),
        });
        tokio::spawn(care::wake_nodes(member.clone()));
        member.call_early();
        member
    }

    /// Makes the links that will surely be wanted: those of the manifests' tree, and what the method says.
    fn call_early(self: &Arc<Self>) {
        let below = tree::below_host(&self.members, self.me).into_iter().map(|errand| errand.to);
        let peers: BTreeSet<MemberId> =
            below.chain(early_calls(self.method, &self.members, self.me, self.seed)).collect();
        let mut core = self.lock();
        for peer in peers {
            self.connect(&mut core, peer);
        }
    }

    /// Waits for changes with the receiver's `changed`.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// Whom this host has shown the door, and why.
    pub fn complaints(&self) -> Vec<(MemberId, String)> {
        self.lock().complaints.clone()
    }

    /// What a coordinator is told.
    pub fn report(&self) -> FromHost {
        let core = self.lock();
        if let State::Failed(why) = &core.state {
            return FromHost::Failed(why.clone());
        }
        let complaints = core.complaints.clone();
        let status = core.transfers.iter().next_back().map(|(number, t)| Status {
            transfer: Some(*number),
            held_bytes: if t.node.is_none() && t.phase < Phase::Done { 0 } else { t.held_bytes },
            resumed_bytes: t.resumed_bytes,
            received_bytes: t.received_bytes.clone(),
            done: t.phase == Phase::Done,
            complaints: complaints.clone(),
        });
        FromHost::Status(status.unwrap_or_else(|| Status { complaints, ..Status::default() }))
    }

    /// Whether this host and all that it is joined to have everything of all transfers, of which there is one.
    pub fn is_over(&self) -> bool {
        let core = self.lock();
        let all = |number: &u32| {
            let complete = core.complete.get(number);
            core.links.keys().all(|peer| complete.is_some_and(|c| c.contains(peer)))
        };
        !core.transfers.is_empty() && core.transfers.iter().all(|(n, t)| t.phase == Phase::Done && all(n))
    }

    /// How long nothing has come from any member.
    pub fn silence(&self) -> Duration {
        self.lock().heard.unwrap_or(self.began).elapsed()
    }

    pub(super) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Ends the links, each after what is queued on it.
    pub fn leave(&self) {
        let mut core = self.lock();
        if core.state == State::Member {
            core.state = State::Left;
        }
        core.links.values_mut().for_each(LinkHandle::close);
        self.tell(&core);
    }

    /// Ends this host's part at once.
    pub fn fail(&self, why: String) {
        let mut core = self.lock();
        if core.state == State::Member {
            tracing::warn!(why, "left the group");
            core.state = State::Failed(why);
        }
        core.links.clear();
        core.transfers.values_mut().for_each(|t| t.node = None);
        self.tell(&core);
    }

    /// Waits until all links have ended.
    pub async fn links_ended(&self) {
        let mut changed = self.watch();
        while !self.lock().links.is_empty() && changed.changed().await.is_ok() {}
    }

    /// The ends that are told in a hello to `peer`, or in the answer to one.
    pub(super) fn ends(&self, peer: MemberId) -> Ends {
        Ends { incarnation: self.incarnation, downs: self.lock().downs.get(&peer).copied().unwrap_or(0) }
    }

    /// Whether a session that `peer` dials shall be a link.
    pub(super) fn admits(&self, peer: MemberId, ends: Ends) -> wire::PeerReply {
        let core = self.lock();
        let refused = |why: &str| wire::PeerReply::Refused(why.to_owned());
        if peer == self.me || !self.members.contains(peer) {
            return refused("that is no number of another member");
        }
        match &core.state {
            State::Member if core.banned.contains(&peer) => return refused("what came from there was wrong"),
            State::Member => {}
            State::Left => return refused("this host has left the group"),
            State::Failed(why) => return refused(why),
        }
        let known = core.links.get(&peer).is_some_and(|l| !l.is_older_than(ends));
        // Of two that dial each other at once, the lower number's session is kept.
        if known || (core.dialling.contains(&peer) && self.me < peer) {
            return wire::PeerReply::Duplicate;
        }
        let downs = core.downs.get(&peer).copied().unwrap_or(0);
        wire::PeerReply::Welcome(Ends { incarnation: self.incarnation, downs })
    }

    /// There is a session with `peer`; `theirs` is what it told of its end.
    pub(super) fn link_up(self: &Arc<Self>, peer: MemberId, session: crate::Session, theirs: Ends, dialled: bool) {
        let mut core = self.lock();
        if dialled {
            core.dialling.remove(&peer);
        }
        if core.state != State::Member || core.banned.contains(&peer) {
            return;
        }
        if core.links.get(&peer).is_some_and(|l| !l.is_older_than(theirs)) {
            // Both dialled, and the other's session was let in meanwhile.
            return;
        }
        if core.links.remove(&peer).is_some() {
            self.lost(&mut core, peer);
        }
        core.links_ever += 1;
        let number = core.links_ever;
        let mut link = LinkHandle::start(self, peer, number, session, theirs);
        for (number, transfer) in &core.transfers {
            if transfer.node.is_some() {
                link.push(Item::Ready(*number));
            }
            if transfer.phase >= Phase::Finishing {
                link.push(Item::Complete(*number));
            }
        }
        if core.transfers.is_empty() && core.asked > 0 {
            link.push(Item::Ask);
        }
        core.links.insert(peer, link);
        tracing::debug!(me = self.me, peer, dialled, "link up");
        for (number, errand) in core.errands.remove(&peer).unwrap_or_default() {
            self.run_errand(&mut core, number, errand);
        }
        self.tell(&core);
    }

    /// A dialled session came to nothing. `why` of [`None`]: the peer is dialling this host.
    pub(super) fn dial_failed(self: &Arc<Self>, peer: MemberId, why: &str) {
        tracing::debug!(me = self.me, peer, why, "no link");
        let mut core = self.lock();
        core.dialling.remove(&peer);
        if core.links.contains_key(&peer) {
            return;
        }
        let errands = core.errands.remove(&peer).unwrap_or_default();
        for (number, errand) in errands {
            for other in tree::instead(&self.members, self.me, &errand) {
                self.run_errand(&mut core, number, other);
            }
        }
        self.down(&mut core, peer);
    }

    /// A link has ended; `fault`: what the peer did wrong.
    pub(super) fn link_down(self: &Arc<Self>, peer: MemberId, link: u64, why: &str, fault: bool) {
        let mut core = self.lock();
        if core.links.get(&peer).is_none_or(|l| l.number() != link) {
            return;
        }
        tracing::debug!(me = self.me, peer, why, fault, "link down");
        core.links.remove(&peer);
        if fault && core.banned.insert(peer) && core.complaints.len() < MAX_COMPLAINTS {
            core.complaints.push((peer, why.to_owned()));
        }
        self.lost(&mut core, peer);
        self.tell(&core);
    }

    fn lost(self: &Arc<Self>, core: &mut Core, peer: MemberId) {
        *core.downs.entry(peer).or_default() += 1;
        core.transfers.values_mut().for_each(|t| t.forget_requests(peer));
        self.down(core, peer);
    }

    /// Tells all nodes that there is no link to `peer`.
    fn down(self: &Arc<Self>, core: &mut Core, peer: MemberId) {
        let numbers: Vec<u32> = core.transfers.keys().copied().collect();
        for number in numbers {
            self.drive(core, number, Input::Down(peer));
        }
    }

    /// A control item came; an error is the peer's fault.
    pub(super) fn hear(self: &Arc<Self>, peer: MemberId, item: Item) -> Result<(), String> {
        let mut core = self.lock();
        core.heard = Some(Instant::now());
        match item {
            Item::Alive => {}
            Item::Ready(number) => {
                let over = number < core.over_below;
                let Some(link) = core.links.get_mut(&peer).filter(|_| !over) else { return Ok(()) };
                link.peer_is_ready(number)?;
                self.join(&mut core, number, peer);
            }
            Item::Node(number, message) => {
                let seconds = self.began.elapsed().as_secs();
                let Some(transfer) = core.transfers.get_mut(&number) else { return Ok(()) };
                transfer.hears(peer, &message, seconds)?;
                if core.links.get(&peer).is_some_and(|l| l.is_up(number)) {
                    self.drive(&mut core, number, Input::Message(peer, message));
                }
            }
            Item::Complete(number) if number < core.over_below => {}
            Item::Complete(number) => {
                let known = core.complete.len();
                match core.complete.get_mut(&number) {
                    Some(complete) => drop(complete.insert(peer)),
                    None if known < MAX_TRANSFERS => drop(core.complete.insert(number, BTreeSet::from([peer]))),
                    None => return Err("it has completed too many transfers".to_owned()),
                }
                self.tell(&core);
            }
            Item::Ask => {
                let numbers: Vec<u32> = core.transfers.keys().copied().collect();
                for number in numbers {
                    self.run_errand(&mut core, number, Errand { to: peer, duties: Vec::new() });
                }
            }
        }
        Ok(())
    }

    /// What `change` makes of a link's queue.
    pub(super) fn with_link<T>(
        &self,
        peer: MemberId,
        link: u64,
        change: impl FnOnce(&mut LinkHandle) -> T,
    ) -> Option<T> {
        let mut core = self.lock();
        core.links.get_mut(&peer).filter(|l| l.number() == link).map(change)
    }

    /// Makes a link with `peer`, unless there is one; false if there will be none.
    fn connect(self: &Arc<Self>, core: &mut Core, peer: MemberId) -> bool {
        let strange = peer == self.me || !self.members.contains(peer);
        if strange || core.state != State::Member || core.banned.contains(&peer) {
            return false;
        }
        if !core.links.contains_key(&peer) && core.dialling.insert(peer) {
            self.runtime.spawn(link::dial(self.clone(), peer));
        }
        true
    }

    /// Sends a manifest on; where there is no link, as soon as there is one.
    fn run_errand(self: &Arc<Self>, core: &mut Core, number: u32, errand: Errand) {
        let Some(transfer) = core.transfers.get(&number) else { return };
        if let Some(link) = core.links.get_mut(&errand.to) {
            if link.tell_manifest(number) {
                let manifest_bytes = transfer.manifest.len() as u32;
                let head = ManifestHead { transfer: number, duties: errand.duties, manifest_bytes };
                match wire::manifest_frame(&head, &transfer.manifest, &transfer.data) {
                    Ok(frame) => link.push_manifest(Arc::new(frame)),
                    Err(error) => tracing::error!(%error, "a manifest"),
                }
            }
            return;
        }
        let to = errand.to;
        if self.connect(core, to) {
            core.errands.entry(to).or_default().push((number, errand));
        } else {
            for other in tree::instead(&self.members, self.me, &errand) {
                self.run_errand(core, number, other);
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn tell(&self, _: &Core) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
