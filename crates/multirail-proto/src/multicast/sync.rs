//! Final synchronization over a binary tree of all hosts (MOB, section 3.1, phase 4): so that each goes on serving the others until
//! all have everything.
//!
//! A host that has everything, and whose children have told that they and all below them have, tells its parent
//! ([`Message::BranchDone`]). When that comes to the top, [`Message::AllDone`] goes down. The paper's hosts do not die. Here a host that is
//! down counts as done; its children belong to the next one above it that is not down. If nobody above is left, the first
//! living host of the tree takes the top.
//!
//! Each host knows only of those that it tried to reach, so two may take different hosts for dead. Therefore a host tells everyone above
//! it that it has a session with, not just its parent; and whoever has finished tells all that it has a session with, now and
//! later: a host that comes back is not left waiting for those who have finished without it. A host believes
//! this of anybody, as soon as it has everything itself: a peer that lies can make it stop serving early, not more.

use super::members::{MemberId, Members};
use super::message::Message;
use super::node::Output;
use std::collections::{BTreeSet, VecDeque};

/// One host's part in the synchronization. Tell it of every session that comes up or goes down from the beginning, then of
/// having everything ([`Sync::done`]); after each call, [`Sync::poll`].
#[derive(Debug, Clone)]
pub struct Sync {
    /// A host's place in the tree is its number, counted from the root.
    root: MemberId,
    count: u32,
    me: u32,
    /// By place.
    up: BTreeSet<u32>,
    down: BTreeSet<u32>,
    /// Who told that all below have everything.
    branches: BTreeSet<u32>,
    /// Whom we told.
    told: BTreeSet<u32>,
    is_done: bool,
    /// Who told that everyone has everything.
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

    /// This host has everything. Told twice, nothing happens.
    pub fn done(&mut self) {
        if !self.is_done {
            self.is_done = true;
            self.proceed();
        }
    }

    /// Whether it is over.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// There is a session with `member`.
    pub fn up(&mut self, member: MemberId) {
        let place = self.place(member);
        self.down.remove(&place);
        self.up.insert(place);
        if self.is_finished {
            self.send(place, Message::AllDone);
        }
        self.proceed();
    }

    /// There is none any more, or it could not be made.
    pub fn down(&mut self, member: MemberId) {
        let place = self.place(member);
        self.up.remove(&place);
        self.branches.remove(&place);
        self.told.remove(&place);
        self.down.insert(place);
        self.proceed();
    }

    /// A message came; those that are not of the synchronization are ignored.
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

    /// The next thing to do.
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

    /// The next above that is not down; `None`: we are at the top.
    fn parent(&self) -> Option<u32> {
        let top = || (0..self.count).find(|place| !self.down.contains(place)).filter(|place| *place != self.me);
        ancestors(self.me).find(|place| !self.down.contains(place)).or_else(top)
    }

    /// The next below that are not down; at the top, also the others with nobody above.
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

/// Those above a place, the nearest first.
fn ancestors(place: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(place), |place| place.checked_sub(1).map(|p| p / 2)).skip(1)
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
