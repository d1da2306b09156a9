//! Final synchronization over a binary tree of all hosts (MOB, section 3.1, phase 4). It keeps
//! every host serving until all hosts hold every piece.
//!
//! A host that holds every piece, and whose children report the same of their branches, tells its
//! parent ([`Message::BranchDone`]). When the report reaches the top, [`Message::AllDone`] goes
//! down.
//!
//! Hosts do not die in the paper. Here, a host that is down counts as done, and its children belong
//! to the next host above it that is not down. If no host above is left, the first living host of
//! the tree becomes the top.
//!
//! A host knows only the state of hosts that it tried to reach, so two hosts may disagree about who
//! is down. A host therefore reports to every host above it with which it has a session. A host
//! that has finished tells every peer with a session, now and later, so that a host that returns
//! does not wait for hosts that have finished without it. A host that holds every piece believes
//! such a report from any peer. A peer that lies can thus end its service early, and nothing else.

use crate::multicast::members::{MemberId, Members};
use crate::multicast::message::Message;
use crate::multicast::node::Output;
use std::collections::{BTreeSet, VecDeque};

/// One host's part in the synchronization. The caller reports every session that comes up or goes
/// down, then that all pieces are held ([`Sync::done`]), and calls [`Sync::poll`] after each
/// report.
#[derive(Debug, Clone)]
pub struct Sync {
    /// A host's position in the tree is its number, counted from the root.
    root: MemberId,
    count: u32,
    me: u32,
    /// Peers with a session, by position.
    up: BTreeSet<u32>,
    down: BTreeSet<u32>,
    /// Positions whose branch is done.
    branches: BTreeSet<u32>,
    /// Positions that this host has reported to.
    told: BTreeSet<u32>,
    is_done: bool,
    /// Positions that reported that all hosts are done.
    finished: BTreeSet<u32>,
    is_finished: bool,
    out: VecDeque<Output>,
}

impl Sync {
    /// For host `me`.
    pub fn new(members: &Members, me: MemberId) -> Self {
        let count = members.count() as u32;
        Self {
            root: members.root(),
            count,
            me: (me + count - members.root()) % count,
            up: BTreeSet::new(),
            down: BTreeSet::new(),
            branches: BTreeSet::new(),
            told: BTreeSet::new(),
            is_done: false,
            finished: BTreeSet::new(),
            is_finished: false,
            out: VecDeque::new(),
        }
    }

    /// This host holds every piece. A second call has no effect.
    pub fn done(&mut self) {
        if !self.is_done {
            self.is_done = true;
            self.proceed();
        }
    }

    /// Whether the synchronization is over.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// A session with `member` is up.
    pub fn up(&mut self, member: MemberId) {
        let place = self.place(member);
        self.down.remove(&place);
        self.up.insert(place);
        if self.is_finished {
            self.send(place, Message::AllDone);
        }
        self.proceed();
    }

    /// The session with `member` has ended, or could not be made.
    pub fn down(&mut self, member: MemberId) {
        let place = self.place(member);
        self.up.remove(&place);
        self.branches.remove(&place);
        self.told.remove(&place);
        self.down.insert(place);
        self.proceed();
    }

    /// Handles a message; messages of other kinds are ignored.
    pub fn message(&mut self, from: MemberId, message: &Message) {
        let place = self.place(from);
        match message {
            Message::BranchDone => {
                self.branches.insert(place);
            }
            Message::AllDone => {
                self.finished.insert(place);
            }
            _ => return,
        }
        self.proceed();
    }

    /// The next action.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn proceed(&mut self) {
        if !self.is_done || self.is_finished {
            return;
        }
        if !self.finished.is_empty() {
            return self.finish();
        }
        let parent = self.parent();
        let children = self.children();
        for neighbour in children.iter().chain(&parent) {
            if !self.up.contains(neighbour) {
                self.out.push_back(Output::Connect(self.member(*neighbour)));
            }
        }
        if !children.iter().all(|child| self.branches.contains(child)) {
            return;
        }
        let Some(parent) = parent else { return self.finish() };
        let above: BTreeSet<u32> = ancestors(self.me).chain([parent]).collect();
        for place in above.intersection(&self.up).copied().collect::<Vec<_>>() {
            if self.told.insert(place) {
                self.send(place, Message::BranchDone);
            }
        }
    }

    fn finish(&mut self) {
        self.is_finished = true;
        for place in self.up.difference(&self.finished).copied().collect::<Vec<_>>() {
            self.send(place, Message::AllDone);
        }
        self.out.push_back(Output::Finished);
    }

    fn send(&mut self, place: u32, message: Message) {
        self.out.push_back(Output::Send(self.member(place), message));
    }

    /// The next position above that is not down. `None`: this host is the top.
    fn parent(&self) -> Option<u32> {
        let top = || (0..self.count).find(|place| !self.down.contains(place)).filter(|place| *place != self.me);
        ancestors(self.me).find(|place| !self.down.contains(place)).or_else(top)
    }

    /// The next positions below that are not down. At the top, also those without a living host
    /// above.
    fn children(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let is_top = self.parent().is_none();
        let mut look: Vec<u32> = if is_top { vec![0, self.me] } else { vec![self.me] };
        while let Some(place) = look.pop() {
            if place == self.me || self.down.contains(&place) {
                let below = [2 * u64::from(place) + 1, 2 * u64::from(place) + 2];
                look.extend(below.iter().filter(|b| **b < u64::from(self.count)).map(|b| *b as u32));
            } else {
                found.insert(place);
            }
        }
        found
    }

    fn place(&self, member: MemberId) -> u32 {
        (member + self.count - self.root) % self.count
    }

    fn member(&self, place: u32) -> MemberId {
        (place + self.root) % self.count
    }
}

/// The positions above `place`, the nearest first.
fn ancestors(place: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(place), |place| place.checked_sub(1).map(|p| p / 2)).skip(1)
}
