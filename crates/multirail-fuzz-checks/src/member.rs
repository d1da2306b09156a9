//! A member of a broadcast beside peers that send anything at any time.

use multirail_proto::multicast::member::{Action, Admission, ControlItem, LinkEnds, Member, MemberConfig, Membership};
use multirail_proto::multicast::{MemberId, Members, Method, PieceSet, Pieces};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The hosts of the group. The checked one is the first host of the second cluster, or the root.
const HOSTS: u32 = 5;
const PIECE_BYTES: u32 = 16 << 10;
const MAX_PIECES: u8 = 40;
/// Actions that one operation may cause. A machine that asks for more makes its driver spin.
const MAX_ACTIONS: usize = 20_000;
/// The most transfers that a member knows.
const MAX_TRANSFERS: usize = 64;

/// The member, and what its driver knows.
struct Driver {
    machine: Member,
    now_us: u64,
    links: BTreeMap<MemberId, u64>,
    dials: BTreeSet<MemberId>,
    /// Stored pieces by transfer. Pieces are told to the machine when they are here.
    stores: BTreeMap<u32, (Pieces, PieceSet)>,
    /// Pieces that arrive from a peer, by transfer and piece.
    arriving: Vec<(MemberId, u32, u32)>,
    finished: Vec<u32>,
}

/// The first byte selects the method and the role, the second one the number of pieces. Then come
/// operations: kind, peer, argument, length, and that many bytes.
///
/// Whatever comes, the member sends nothing to hosts without a link, sends only pieces that it has,
/// finishes only what it has whole, and does not ask its driver for ever more.
pub fn member(bytes: &[u8]) {
    let [kind, count, rest @ ..] = bytes else { return };
    let mut driver = Driver::new(*kind, *count);
    let mut rest = rest;
    while let [kind, peer, argument, length, behind @ ..] = rest {
        let (input, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        driver.step(*kind, u32::from(*peer) % (HOSTS + 1), *argument, input);
        driver.carry_out();
    }
}

impl Driver {
    fn new(kind: u8, count: u8) -> Self {
        let me = if kind & 1 == 0 { 2 } else { 0 };
        let methods = Method::ALL;
        let config = MemberConfig {
            me,
            members: Arc::new(Members::new(vec![0, 0, 1, 1, 1], 0).expect("a group")),
            method: methods[usize::from(kind >> 1) % methods.len()],
            bandwidths: None,
            seed: kind.into(),
            incarnation: 7,
            answer_timeout_us: MemberConfig::ANSWER_TIMEOUT_US,
        };
        let (links, stores) = (BTreeMap::new(), BTreeMap::new());
        let mut driver = Self {
            machine: Member::new(config, 0),
            now_us: 0,
            links,
            dials: BTreeSet::new(),
            stores,
            arriving: Vec::new(),
            finished: Vec::new(),
        };
        let pieces = pieces(count);
        if me == 0 {
            let held = PieceSet::all(pieces.count());
            driver.stores.insert(0, (pieces, held.clone()));
            driver.machine.handle_broadcast(0, 0, pieces, held, false);
        }
        driver.carry_out();
        driver
    }

    fn step(&mut self, kind: u8, peer: MemberId, argument: u8, input: &[u8]) {
        let now_us = self.now_us;
        let transfer = u32::from(argument >> 6);
        match kind % 12 {
            0 => {
                let ends = LinkEnds { incarnation: (argument & 3).into(), downs: (argument >> 2).into() };
                if let Admission::Welcome(_) = self.machine.handle_hello(peer, ends)
                    && let Some(link) = self.link_up(peer, ends, argument & 128 != 0)
                {
                    self.links.insert(peer, link);
                }
            }
            1..=4 => {
                let mut items = input;
                while let Ok((item, behind)) = postcard::take_from_bytes::<ControlItem>(items) {
                    items = behind;
                    if !self.links.contains_key(&peer) {
                        return;
                    }
                    if let Err(fault) = self.machine.handle_item(now_us, peer, item) {
                        self.down(peer, Some(&fault.to_string()));
                    }
                    self.carry_out();
                }
            }
            5 => self.manifest(peer, transfer, argument & 63, input),
            6 => self.piece(peer, transfer, argument & 63),
            7 if !self.arriving.is_empty() => {
                let (peer, transfer, piece) = self.arriving.remove(usize::from(argument) % self.arriving.len());
                match self.stores.get_mut(&transfer) {
                    Some((_, held)) if input.first() != Some(&1) => {
                        held.insert(piece);
                        self.machine.handle_stored(now_us, peer, transfer, piece);
                    }
                    _ => {
                        self.machine.handle_bad_piece(now_us, peer, transfer, piece);
                        self.down(peer, Some("bad"));
                    }
                }
            }
            8 => {
                self.now_us += u64::from(argument) << (input.len() % 20);
                self.machine.handle_timeout(self.now_us);
            }
            9 => self.down(peer, None),
            10 if self.dials.remove(&peer) => self.machine.handle_dial_failed(now_us, peer),
            11 if argument == 255 => self.machine.handle_failure("of the disk".to_owned()),
            11 if argument == 254 => self.machine.handle_leave(),
            11 if argument == 253 => {
                self.machine.handle_over(transfer);
                self.stores.retain(|number, _| *number >= transfer);
            }
            11 if argument >= 240 => {
                let clusters = input.iter().map(|byte| u32::from(byte % 6)).collect();
                if let Ok(members) = Members::new(clusters, u32::from(argument == 240)) {
                    self.machine.handle_regroup(now_us, members);
                }
            }
            _ => {}
        }
    }

    fn link_up(&mut self, peer: MemberId, ends: LinkEnds, dialled: bool) -> Option<u64> {
        let dialled = dialled && self.dials.remove(&peer);
        self.machine.handle_link_up(self.now_us, peer, ends, dialled)
    }

    fn down(&mut self, peer: MemberId, fault: Option<&str>) {
        if let Some(link) = self.links.remove(&peer) {
            self.arriving.retain(|(from, _, _)| *from != peer);
            self.machine.handle_link_down(self.now_us, peer, link, fault);
        }
    }

    fn manifest(&mut self, peer: MemberId, transfer: u32, count: u8, positions: &[u8]) {
        if !self.links.contains_key(&peer) {
            return;
        }
        let positions: Vec<u32> = positions.iter().map(|byte| u32::from(*byte) << (byte & 31)).collect();
        match self.machine.handle_manifest_offer(self.now_us, transfer, positions.len()) {
            Err(fault) => self.down(peer, Some(&fault.to_string())),
            Ok(false) => {}
            Ok(true) => {
                let pieces = pieces(count);
                if self.machine.handle_manifest(peer, transfer, pieces, 0, &positions) {
                    let held = PieceSet::none(pieces.count());
                    self.stores.insert(transfer, (pieces, held.clone()));
                    self.machine.handle_store_open(self.now_us, transfer, held);
                }
            }
        }
    }

    /// A piece begins to arrive. The driver has checked its number.
    fn piece(&mut self, peer: MemberId, transfer: u32, piece: u8) {
        let Some((pieces, _)) = self.stores.get(&transfer) else { return };
        if !self.links.contains_key(&peer) || u32::from(piece) >= pieces.count() {
            return;
        }
        match self.machine.handle_piece_start(peer, transfer, piece.into()) {
            Err(fault) => self.down(peer, Some(&fault.to_string())),
            Ok(true) => {
                self.machine.handle_bytes(self.now_us, peer, transfer, PIECE_BYTES.into());
                self.arriving.push((peer, transfer, piece.into()));
            }
            Ok(false) => {}
        }
    }

    fn carry_out(&mut self) {
        for count in 0.. {
            assert!(count < MAX_ACTIONS, "the machine asks for ever more");
            let Some(action) = self.machine.poll_action() else { break };
            match action {
                Action::Dial(peer) => {
                    assert!(peer < HOSTS && !self.links.contains_key(&peer), "a dial to {peer}");
                    assert!(self.dials.insert(peer), "a second dial to {peer}");
                }
                Action::EndLink { peer, link } => {
                    if self.links.get(&peer) == Some(&link) {
                        self.links.remove(&peer);
                        self.arriving.retain(|(from, _, _)| *from != peer);
                    }
                }
                Action::CloseLinks | Action::EndLinks => {
                    assert_ne!(*self.machine.membership(), Membership::Active);
                    self.links.clear();
                    self.arriving.clear();
                }
                Action::Send { to, .. } | Action::SendManifest { to, .. } | Action::Withdraw { to, .. } => {
                    assert!(to < HOSTS, "a message to {to}");
                }
                Action::SendPiece { to, transfer, piece } => {
                    let held = self.stores.get(&transfer).is_some_and(|(_, held)| held.contains(piece));
                    assert!(held && to < HOSTS, "piece {piece} of {transfer} to {to}");
                    self.machine.handle_sent(self.now_us, to, transfer, piece);
                }
                Action::Finish(transfer) => {
                    assert!(
                        self.stores.get(&transfer).is_some_and(|(_, held)| held.is_full()),
                        "{transfer} is not whole"
                    );
                    assert!(!self.finished.contains(&transfer), "{transfer} is finished twice");
                    self.finished.push(transfer);
                    self.machine.handle_finished(transfer);
                }
                Action::Publish => {}
            }
        }
        assert!(self.machine.poll_timeout().is_none_or(|at| at > 0));
        assert!(self.stores.len() <= MAX_TRANSFERS);
        if let Some(status) = self.machine.status() {
            let (pieces, held) = &self.stores[&status.transfer];
            assert!(status.held_bytes <= pieces.total_bytes);
            assert!(!status.is_done || held.is_full());
        }
    }
}

fn pieces(count: u8) -> Pieces {
    Pieces { total_bytes: u64::from(count % MAX_PIECES) * u64::from(PIECE_BYTES), piece_bytes: PIECE_BYTES }
}
