//! The node of the methods with a plan: every host sends each piece to its children in the piece's
//! tree. Trees do not adapt. A host that is down leaves all hosts below it without their data until
//! it is back.

mod child;
pub(crate) mod routes;

use crate::multicast::members::MemberId;
use crate::multicast::message::Message;
use crate::multicast::node::{Input, Node, Output};
use crate::multicast::pieces::PieceSet;
use child::{Child, LinkState};
use routes::Routes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The pause before a failed session is asked for again. It doubles each time, up to
/// [`MAX_RETRY_US`].
const RETRY_US: u64 = 1_000_000;
const MAX_RETRY_US: u64 = 32_000_000;

/// One host's part in a plan.
#[derive(Debug)]
pub(crate) struct Planned {
    me: MemberId,
    routes: Arc<Routes>,
    held: PieceSet,
    /// The pieces held, by tree, in the order of arrival.
    arrived: Vec<Vec<u32>>,
    children: BTreeMap<MemberId, Child>,
    /// The parents of this host in all trees, and whether there is a session.
    parents: BTreeMap<MemberId, bool>,
    /// When to look at which child again.
    wakes: BTreeSet<(u64, MemberId)>,
    stage: Stage,
    outputs: VecDeque<Output>,
}

/// The final synchronization over the first tree, among the hosts that are not down (MOB paper,
/// section 3.1, phase 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// This host, or one below it, lacks pieces.
    Getting,
    /// After `Getting`: the parent was told, or will be when it is back.
    BranchDone,
    /// After `BranchDone`, or after `Getting` at the root.
    Finished,
}

impl Planned {
    /// The node of host `me`, which holds `held`. The root holds every piece.
    pub(crate) fn new(me: MemberId, routes: Arc<Routes>, held: PieceSet) -> Self {
        let mut arrived = vec![Vec::new(); routes.trees().len()];
        held.iter().for_each(|piece| arrived[routes.tree_of(piece)].push(piece));
        let below: BTreeSet<MemberId> =
            routes.trees().flat_map(|tree| routes.children(tree, me).iter().copied()).collect();
        let child = |id: MemberId| {
            let trees = routes.trees().filter(|tree| routes.parent(*tree, id) == Some(me));
            (id, Child::new(&routes, trees))
        };
        Self {
            me,
            held,
            arrived,
            children: below.into_iter().map(child).collect(),
            parents: routes.trees().filter_map(|tree| Some((routes.parent(tree, me)?, false))).collect(),
            wakes: BTreeSet::new(),
            stage: Stage::Getting,
            outputs: VecDeque::new(),
            routes,
        }
    }

    fn start(&mut self) {
        let mut asked = BTreeSet::new();
        for tree in self.routes.trees() {
            for child in self.routes.children(tree, self.me) {
                if asked.insert(*child) {
                    self.outputs.push_back(Output::Connect(*child));
                }
            }
        }
        self.check_branch();
    }

    fn up(&mut self, now_us: u64, peer: MemberId) {
        if let Some(up) = self.parents.get_mut(&peer) {
            *up = true;
            self.outputs.push_back(Output::Send(peer, Message::Bitfield(self.held.to_bytes())));
            if self.stage != Stage::Getting && self.routes.parent(0, self.me) == Some(peer) {
                self.outputs.push_back(Output::Send(peer, Message::BranchDone));
            }
        }
        if let Some(child) = self.children.get_mut(&peer) {
            child.attempts = 0;
            // The first session does not wait for an announcement, since most hosts begin with
            // nothing.
            match child.link {
                LinkState::Asked => child.link = LinkState::Up,
                LinkState::Down { .. } => child.link = LinkState::Returned,
                LinkState::Up | LinkState::Returned => {}
            }
            self.pump(now_us, peer);
        }
    }

    fn down(&mut self, now_us: u64, peer: MemberId) {
        if let Some(up) = self.parents.get_mut(&peer) {
            *up = false;
        }
        if let Some(child) = self.children.get_mut(&peer) {
            child.forget();
            let wait_us = (RETRY_US << child.attempts.min(16)).min(MAX_RETRY_US);
            child.attempts += 1;
            child.link = LinkState::Down { retry_us: Some(now_us + wait_us) };
            self.pump(now_us, peer);
            self.check_branch();
        }
    }

    fn message(&mut self, now_us: u64, from: MemberId, message: Message) {
        match message {
            Message::Bitfield(bits) => {
                if let Some(has) = PieceSet::from_bytes(self.held.pieces(), &bits) {
                    self.child_has(now_us, from, has.iter());
                }
            }
            Message::Have(pieces) => self.child_has(now_us, from, pieces.into_iter()),
            Message::BranchDone => {
                if let Some(child) = self.children.get_mut(&from) {
                    child.branch_done = true;
                    match self.stage {
                        Stage::Finished => self.outputs.push_back(Output::Send(from, Message::AllDone)),
                        _ => self.check_branch(),
                    }
                }
            }
            Message::AllDone if self.stage == Stage::BranchDone && self.routes.parent(0, self.me) == Some(from) => {
                self.finish();
            }
            // An early message, or one of another method.
            _ => {}
        }
    }

    fn child_has(&mut self, now_us: u64, id: MemberId, pieces: impl Iterator<Item = u32>) {
        let Some(child) = self.children.get_mut(&id) else { return };
        for needless in child.has_got(pieces, &self.routes.pieces()) {
            self.outputs.push_back(Output::Withdraw(id, needless));
        }
        if child.link == LinkState::Returned {
            child.link = LinkState::Up;
        }
        self.pump(now_us, id);
    }

    fn stored(&mut self, now_us: u64, from: MemberId, piece: u32) {
        if !self.held.insert(piece) {
            return;
        }
        let tree = self.routes.tree_of(piece);
        self.arrived[tree].push(piece);
        // A piece found on disk: its senders need not send it.
        if from == self.me
            && let Some(parent) = self.routes.parent(tree, self.me)
            && self.parents.get(&parent) == Some(&true)
        {
            self.outputs.push_back(Output::Send(parent, Message::Have(vec![piece])));
        }
        let routes = Arc::clone(&self.routes);
        routes.children(tree, self.me).iter().for_each(|child| self.pump(now_us, *child));
        self.check_branch();
    }

    /// Queues what a child lacks, as far as there is room and the rates allow. Notes when to look
    /// again.
    fn pump(&mut self, now_us: u64, id: MemberId) {
        let Some(child) = self.children.get_mut(&id) else { return };
        if let Some(wake_us) = child.wake_us.take() {
            self.wakes.remove(&(wake_us, id));
        }
        while let Some(piece) = child.next(now_us, &self.arrived, &self.routes.pieces()) {
            self.outputs.push_back(Output::SendPiece(id, piece));
        }
        // Once all others are done, a host that is down has to come back by itself.
        if let LinkState::Down { retry_us: Some(retry_us) } = child.link
            && self.stage != Stage::Finished
        {
            child.wake_us = Some(retry_us);
        }
        if let Some(wake_us) = child.wake_us {
            self.wakes.insert((wake_us, id));
        }
    }

    fn wake(&mut self, now_us: u64) {
        while let Some((wake_us, id)) = self.wakes.first().copied()
            && wake_us <= now_us
        {
            self.wakes.pop_first();
            let Some(child) = self.children.get_mut(&id) else { continue };
            child.wake_us = None;
            if matches!(child.link, LinkState::Down { retry_us: Some(_) }) {
                child.link = LinkState::Down { retry_us: None };
                self.outputs.push_back(Output::Connect(id));
            }
            self.pump(now_us, id);
        }
    }

    /// Tells the parent once this host and all hosts below hold every piece. At the root, that is
    /// the end.
    fn check_branch(&mut self) {
        let is_done = |id: &MemberId| {
            let child = self.children.get(id);
            child.is_some_and(|child| child.branch_done || matches!(child.link, LinkState::Down { .. }))
        };
        let complete = self.held.is_full() && self.routes.children(0, self.me).iter().all(is_done);
        if self.stage != Stage::Getting || !complete {
            return;
        }
        match self.routes.parent(0, self.me) {
            None => self.finish(),
            Some(parent) => {
                self.stage = Stage::BranchDone;
                if self.parents.get(&parent) == Some(&true) {
                    self.outputs.push_back(Output::Send(parent, Message::BranchDone));
                }
            }
        }
    }

    fn finish(&mut self) {
        self.stage = Stage::Finished;
        for id in self.routes.children(0, self.me) {
            if self.children.get(id).is_some_and(|child| child.branch_done) {
                self.outputs.push_back(Output::Send(*id, Message::AllDone));
            }
        }
        self.outputs.push_back(Output::Finished);
        // These methods never request a piece again.
        for (id, child) in &mut self.children {
            if matches!(child.link, LinkState::Down { .. })
                && let Some(wake_us) = child.wake_us.take()
            {
                self.wakes.remove(&(wake_us, *id));
            }
        }
    }
}

impl Node for Planned {
    fn handle(&mut self, now_us: u64, input: Input) {
        match input {
            Input::Start => self.start(),
            Input::Up(peer) => self.up(now_us, peer),
            Input::Down(peer) => self.down(now_us, peer),
            Input::Message(from, message) => self.message(now_us, from, message),
            Input::Stored { from, piece } => self.stored(now_us, from, piece),
            // The session ends after this. The piece is sent again on the next one.
            Input::Bad { .. } => {}
            Input::Sent { to, piece } => {
                if let Some(child) = self.children.get_mut(&to) {
                    child.sent(piece, &self.routes.pieces());
                    self.pump(now_us, to);
                }
            }
            Input::Wake => self.wake(now_us),
            Input::Regroup(_) => {}
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn wake_at_us(&self) -> Option<u64> {
        self.wakes.first().map(|(wake_us, _)| *wake_us)
    }

    fn held(&self) -> &PieceSet {
        &self.held
    }
}

#[cfg(test)]
mod tests;
