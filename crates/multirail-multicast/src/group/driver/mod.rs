//! The driver of a member: carries out what its state machine decides.
//!
//! [`MemberDriver`] holds the machine ([`Member`]), the links and the stores behind one mutex. The
//! mutex is never held during I/O, hashing or waiting. A link or the timer that has news locks it,
//! calls the machine, and carries out the machine's actions, most of which fill the queues of links.
//! All tasks of a group run in the runtime in which the driver was made.

mod owner;
mod stores;
mod timer;

use super::inbox::GroupInbox;
use crate::link::{self, Buffers, LinkHandle};
use crate::pass::Passes;
use crate::store::{Manifest, Store, StoreError};
use crate::wire::{self, FromHost, GroupId, InviteHost, ManifestHead, Status};
use multirail_net::sync::lock;
use multirail_net::{Channels, Config};
use multirail_proto::multicast::member::{Action, Member, MemberConfig, Membership};
use multirail_proto::multicast::{Bandwidths, MemberId, Members, Method, Pieces};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// A session between members outlives its last rail by this much. When a process is killed, all its
/// connections end at once, and the pieces it was to send wait this long. When only connections ended,
/// a few round trips make new ones, in the session or as a new link.
pub(super) const LINK_GIVES_UP_AFTER: Duration = Duration::from_millis(500);
/// How long a peer may leave requests unanswered. Tests use a shorter time.
const ANSWER_TIMEOUT_US: u64 = if cfg!(test) { 3_000_000 } else { MemberConfig::ANSWER_TIMEOUT_US };

/// How a host opens the store for a manifest that arrived.
pub(super) type OpenStore = dyn Fn(u32, Arc<Manifest>) -> Result<Arc<dyn Store>, StoreError> + Send + Sync;

/// What a host knows when its part in a group begins.
pub(super) struct MemberSetup {
    pub id: GroupId,
    pub hosts: Vec<InviteHost>,
    pub me: MemberId,
    pub members: Members,
    pub method: Method,
    pub bandwidths: Option<Bandwidths>,
    pub seed: u64,
    pub config: Config,
    /// By which members know each other.
    pub passes: Passes,
    /// The id of the only manifest that is accepted; `None`: all are.
    pub manifest: Option<[u8; 32]>,
    /// Whether the broadcast may have begun without this host.
    pub joins_later: bool,
    pub open: Box<OpenStore>,
    /// Takes the data of a transfer that is complete; `None`: it stays in its store.
    pub inbox: Option<Arc<GroupInbox>>,
}

/// One host's part in a group.
pub(crate) struct MemberDriver {
    this: Weak<Self>,
    pub(super) id: GroupId,
    me: MemberId,
    root: MemberId,
    config: Config,
    passes: Passes,
    manifest: Option<[u8; 32]>,
    open: Box<OpenStore>,
    inbox: Option<Arc<GroupInbox>>,
    began: Instant,
    runtime: tokio::runtime::Handle,
    core: Mutex<Core>,
    /// Wakes the timer task when the machine wants an earlier timeout.
    timer: Notify,
    /// Counts changes that others may wait for.
    changed: watch::Sender<u64>,
    buffers: Buffers,
}

struct Core {
    machine: Member,
    /// The addresses of the members.
    addresses: Vec<String>,
    links: BTreeMap<MemberId, LinkHandle>,
    transfers: BTreeMap<u32, TransferData>,
    /// When the timer task wakes.
    timer_at_us: Option<u64>,
}

/// What the driver keeps of a broadcast. The machine keeps the rest.
struct TransferData {
    /// The manifest as it travels.
    manifest: Arc<Vec<u8>>,
    /// The data, if it travels with the manifest.
    data: Arc<Vec<u8>>,
    pieces: Pieces,
    /// `None` until the store is open.
    store: Option<Arc<dyn Store>>,
}

impl fmt::Debug for MemberDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberDriver").field("me", &self.me).finish_non_exhaustive()
    }
}

impl MemberDriver {
    /// Begins a host's part, in the runtime of the caller.
    pub(super) fn begin(setup: MemberSetup) -> Arc<Self> {
        let MemberSetup { id, hosts, me, members, method, bandwidths, seed, config, passes, manifest, .. } = setup;
        let MemberSetup { joins_later, open, inbox, .. } = setup;
        let mut incarnation = [0; 8];
        let _ = getrandom::fill(&mut incarnation);
        let root = members.root();
        let machine = MemberConfig {
            me,
            members: Arc::new(members),
            method,
            bandwidths,
            seed,
            incarnation: u64::from_le_bytes(incarnation),
            answer_timeout_us: ANSWER_TIMEOUT_US,
        };
        // The links of all hosts share the paths. A second channel of one link would take bandwidth from
        // the other links, and probing for it would cost all of them.
        let channels = match config.channels {
            Channels::Auto => Channels::Fixed(NonZero::<u32>::MIN),
            fixed => fixed,
        };
        let driver = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            id,
            me,
            root,
            config: config.give_up_after(LINK_GIVES_UP_AFTER).channels(channels),
            passes,
            manifest,
            open,
            inbox,
            began: Instant::now(),
            runtime: tokio::runtime::Handle::current(),
            core: Mutex::new(Core {
                machine: Member::new(machine, 0),
                addresses: hosts.into_iter().map(|host| host.address).collect(),
                links: BTreeMap::new(),
                transfers: BTreeMap::new(),
                timer_at_us: None,
            }),
            timer: Notify::new(),
            changed: watch::Sender::new(0),
            buffers: Buffers::default(),
        });
        driver.with_machine(|machine, _| {
            if joins_later {
                machine.handle_join();
            }
        });
        driver.runtime.spawn(driver.clone().run_timer());
        driver
    }

    /// Ends the links, each after what is queued on it.
    pub(super) fn leave(&self) {
        self.with_machine(|machine, _| machine.handle_leave());
    }

    /// Ends this host's part at once.
    pub(super) fn fail(&self, why: String) {
        self.with_machine(|machine, _| {
            if *machine.membership() == Membership::Active {
                tracing::warn!(why, "left the group");
            }
            machine.handle_failure(why);
        });
    }

    /// Waits until all links have ended.
    pub(super) async fn links_ended(&self) {
        let mut changed = self.watch();
        while !self.lock().links.is_empty() && changed.changed().await.is_ok() {}
    }

    /// A receiver whose `changed` waits for changes of the report or the links.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether the host takes part.
    pub(super) fn membership(&self) -> Membership {
        self.lock().machine.membership().clone()
    }

    /// The peers that broke the rules, and how.
    pub(super) fn complaints(&self) -> Vec<(MemberId, String)> {
        self.lock().machine.complaints().to_vec()
    }

    /// Whether a member that has lost its coordinator has nothing left to wait for.
    pub(super) fn may_end_alone(&self) -> bool {
        self.lock().machine.may_end_alone(self.now_us())
    }

    /// What the coordinator is told.
    pub(super) fn report(&self) -> FromHost {
        let core = self.lock();
        if let Membership::Failed(why) = core.machine.membership() {
            return FromHost::Failed(why.clone());
        }
        let complaints = core.machine.complaints().to_vec();
        FromHost::Status(match core.machine.status() {
            Some(status) => Status {
                transfer: Some(status.transfer),
                held_bytes: status.held_bytes,
                resumed_bytes: status.resumed_bytes,
                received_bytes: status.received_bytes,
                done: status.is_done,
                complaints,
            },
            None => Status { complaints, ..Status::default() },
        })
    }

    /// The members are in these clusters. `joined`: those from number `first` on, of which this host may know
    /// some. Returns whether these are clusters of this group.
    pub(super) fn regroup(&self, clusters: Vec<u32>, first: MemberId, joined: &[InviteHost]) -> bool {
        let Ok(members) = Members::new(clusters, self.root) else { return false };
        let mut core = self.lock();
        let known = core.addresses.len();
        let Some(skip) = known.checked_sub(first as usize) else { return false };
        let new = joined.get(skip..).unwrap_or_default();
        if members.count() != known + new.len() {
            return false;
        }
        core.addresses.extend(new.iter().map(|host| host.address.clone()));
        let is_same_group = core.machine.handle_regroup(self.now_us(), members);
        self.carry_out(&mut core);
        is_same_group
    }

    /// The addresses of members; `None` if there is no such member.
    pub(super) fn addresses(&self, members: &[MemberId]) -> Option<Vec<String>> {
        let core = self.lock();
        members.iter().map(|member| core.addresses.get(*member as usize).cloned()).collect()
    }

    /// The length of the latest broadcast's data; `None` if this host knows of none.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        Some(self.lock().transfers.values().next_back()?.pieces.total_bytes)
    }

    /// The runtime of the group.
    pub(super) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Calls the machine and carries out what it decides.
    fn with_machine<T>(&self, call: impl FnOnce(&mut Member, u64) -> T) -> T {
        let mut core = self.lock();
        let answer = call(&mut core.machine, self.now_us());
        self.carry_out(&mut core);
        answer
    }

    /// Carries out the machine's actions and adjusts the timer.
    fn carry_out(&self, core: &mut Core) {
        while let Some(action) = core.machine.poll_action() {
            self.act(core, action);
        }
        let next_us = core.machine.poll_timeout();
        // The timer task also wakes when there will be no timeout any more, and ends.
        let is_earlier = match (next_us, core.timer_at_us) {
            (Some(next), Some(timer)) => next < timer,
            (next, timer) => next.is_some() != timer.is_some(),
        };
        if is_earlier {
            core.timer_at_us = next_us;
            self.timer.notify_one();
        }
    }

    fn act(&self, core: &mut Core, action: Action) {
        match action {
            Action::Dial(peer) => {
                if let Some(driver) = self.this.upgrade() {
                    self.runtime.spawn(link::dial(driver, peer));
                }
            }
            Action::EndLink { peer, link } => {
                if core.links.get(&peer).is_some_and(|l| l.number() == link) {
                    core.links.remove(&peer);
                }
            }
            Action::CloseLinks => core.links.values_mut().for_each(LinkHandle::close),
            Action::EndLinks => core.links.clear(),
            Action::Send { to, item } => {
                if let Some(link) = core.links.get_mut(&to) {
                    link.push(item);
                }
            }
            Action::SendManifest { to, transfer, positions } => {
                let (Some(link), Some(data)) = (core.links.get_mut(&to), core.transfers.get(&transfer)) else { return };
                let manifest_bytes = data.manifest.len() as u32;
                let head = ManifestHead { transfer, positions, manifest_bytes };
                match wire::manifest_frame(&head, &data.manifest, &data.data) {
                    Ok(frame) => link.push_manifest(Arc::new(frame)),
                    Err(error) => tracing::error!(%error, "encoding a manifest"),
                }
            }
            Action::SendPiece { to, transfer, piece } => {
                if let Some(link) = core.links.get_mut(&to) {
                    link.push_piece(transfer, piece);
                }
            }
            Action::Withdraw { to, transfer, piece } => {
                if let Some(link) = core.links.get_mut(&to) {
                    link.withdraw(transfer, piece);
                }
            }
            Action::Finish(number) => {
                let store = core.transfers.get(&number).and_then(|transfer| transfer.store.clone());
                if let (Some(driver), Some(store)) = (self.this.upgrade(), store) {
                    self.runtime.spawn(driver.finish_store(number, store));
                }
            }
            Action::Publish => self.changed.send_modify(|count| *count += 1),
        }
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }
}
