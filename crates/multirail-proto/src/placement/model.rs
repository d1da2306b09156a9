//! A host's decisions, in Rust: which of its ports a packet of an unmodified program leaves by (PMCME, section 3).
//!
//! The kernel decides by `crates/multirail/bpf/decide.h`; this is the model that it is compared with, decision by decision. Arithmetic is that
//! of the C: unsigned, with nanoseconds for a KiB as a port's speed.

use super::adaptive;
use super::ports::{Look, Mask, Port};
use super::{MAX_PORTS, Policy, SLOTS};

/// Why a packet leaves by its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The policy is `single`.
    First,
    /// By the hash of addresses.
    Hash,
    /// It was the port's turn.
    Turn,
    /// Its stream is kept to this port.
    Pinned,
    /// Its stream has several ports, and this is free first.
    Spread,
    /// Its stream has little to send, and this port is free first.
    Least,
}

/// What a decision depends on besides what went before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Since any fixed point.
    pub now_ns: u64,
    /// Of the frame.
    pub bytes: u32,
    /// Of the hardware addresses.
    pub hash2: u32,
    /// Of addresses and transport ports.
    pub hash34: u32,
    /// Of a TCP stream of this host; if not, the fields below are 0.
    pub is_tcp: bool,
    /// Bytes that the program wrote and the peer has not acknowledged.
    pub backlog_bytes: u32,
    /// Segments that are on the way.
    pub in_flight: u32,
    /// Of the backlog, what has not been sent yet.
    pub unsent_bytes: u32,
    /// Segments sent since the stream began.
    pub segments: u32,
    /// Of these, those that the peer says it got twice (DSACK).
    pub duplicates: u32,
    /// Its stream says that it ends.
    pub is_last: bool,
    /// What is queued at the ports, where it was looked at for this packet.
    pub look: Option<Look>,
}

/// A stream, as far as placement remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    pub(super) number: u32,
    pub(super) slot: u32,
    pub(super) port: u32,
    /// Those it may use.
    pub(super) ports: Mask,
    /// At most so many of them, for the sake of its receiver; 0: no limit.
    pub(super) width: u32,
    pub(super) segments: u32,
    pub(super) duplicates: u32,
    /// Judgements in a row.
    pub(super) bad: u32,
    pub(super) good: u32,
    is_pinned: bool,
    pub(super) judged_ns: u64,
    /// When it last had something waiting.
    pub(super) busy_ns: u64,
    pub(super) packets: u64,
}

impl Stream {
    /// How many ports it may use, as long as it is busy.
    #[must_use]
    pub fn ports(&self) -> u32 {
        self.ports.count()
    }
}

/// A host whose ports are known.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its ports that can be used; those of the same number of both hosts are joined.
    pub usable: Mask,
    /// What its ports need for a KiB at the speed that it tells of; 0 where it tells of none.
    pub ns_per_kib: [u64; MAX_PORTS],
    /// When its port will have taken what it was given by this host, where it is slower than this host's.
    pub(super) free_ns: [u64; MAX_PORTS],
    pub(super) given_ns: [u64; MAX_PORTS],
    pub(super) most_ns: u64,
    /// When the stream that has a slot was last busy.
    pub(super) busy_ns: [u64; SLOTS],
    /// Its number, 0: nobody's.
    pub(super) holders: [u32; SLOTS],
    /// Slots whose streams were busy when they were counted, a bit each,
    pub(super) busy: u64,
    /// and those that nobody else may have yet.
    pub(super) held: u64,
    pub(super) counted_ns: u64,
    /// Ports to it that were clearly slower than the fastest when streams were counted.
    pub(super) slow: Mask,
    pub(super) streams: u32,
}

impl Peer {
    /// A peer of which those ports work, and which does not tell how fast they are.
    #[must_use]
    pub fn new(usable: Mask) -> Self {
        Peer {
            usable,
            ns_per_kib: [0; MAX_PORTS],
            free_ns: [0; MAX_PORTS],
            given_ns: [0; MAX_PORTS],
            most_ns: 0,
            busy_ns: [0; SLOTS],
            holders: [0; SLOTS],
            busy: 0,
            held: 0,
            counted_ns: 0,
            slow: Mask::default(),
            streams: 0,
        }
    }

    /// How long each of the ports, here or there, has worked for this peer, in nanoseconds.
    #[must_use]
    pub fn given_ns(&self) -> &[u64; MAX_PORTS] {
        &self.given_ns
    }
}

/// This host: its ports and its policy.
#[derive(Clone, Debug)]
pub struct Host {
    policy: Policy,
    /// Of [`Policy::Backlog`].
    threshold_bytes: u32,
    /// Its ports that can be used.
    pub usable: Mask,
    ports: Vec<Port>,
    next_packet: u32,
    next_stream: u32,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Its number.
    pub port: u32,
    /// For what reason.
    pub why: Why,
}

impl Host {
    /// A host with a port for each of `ns_per_kib`, what it needs for a KiB at its nominal speed; at most [`MAX_PORTS`].
    #[must_use]
    pub fn new(policy: Policy, threshold_bytes: u32, ns_per_kib: &[u64]) -> Self {
        let ports: Vec<Port> = ns_per_kib.iter().take(MAX_PORTS).map(|ns| Port::new(*ns)).collect();
        Host { policy, threshold_bytes, usable: Mask::first(ports.len()), ports, next_packet: 0, next_stream: 0 }
    }

    /// In the order of their numbers.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The port for a packet to `peer`, or none if the two have no port in common that works. `stream`: where the kernel knows whose it is.
    pub fn decide(&mut self, peer: &mut Peer, mut stream: Option<&mut Stream>, packet: &Packet) -> Option<Decision> {
        let usable = self.usable.and(peer.usable);
        if usable.count() == 0 {
            return None;
        }
        if let Some(look) = &packet.look {
            for (number, queued) in look.queued_bytes.into_iter().enumerate().take(self.ports.len()) {
                let (before, from) = self.ports.split_at_mut(number);
                from[0].look(before, packet.now_ns, queued);
            }
        }
        let decision = match self.policy {
            Policy::Single => Decision { port: usable.nth(0), why: Why::First },
            Policy::Layer2 => Decision { port: usable.nth(packet.hash2), why: Why::Hash },
            Policy::Layer34 => Decision { port: usable.nth(packet.hash34), why: Why::Hash },
            Policy::RoundRobin => Decision { port: usable.nth(next(&mut self.next_packet)), why: Why::Turn },
            Policy::Backlog => self.by_backlog(usable, stream.as_deref_mut(), packet),
            Policy::Adaptive => adaptive::decide(&self.ports, usable, peer, stream.as_deref_mut(), packet),
        };
        self.account(peer, stream, packet, decision);
        Some(decision)
    }

    fn by_backlog(&mut self, usable: Mask, stream: Option<&mut Stream>, packet: &Packet) -> Decision {
        if let Some(stream) = stream {
            if stream.is_pinned && usable.has(stream.port) {
                return Decision { port: stream.port, why: Why::Pinned };
            }
            if packet.is_tcp && packet.backlog_bytes > self.threshold_bytes {
                return Decision { port: usable.nth(next(&mut self.next_stream)), why: Why::Pinned };
            }
        }
        Decision { port: usable.nth(next(&mut self.next_packet)), why: Why::Turn }
    }

    fn account(
        &mut self,
        peer: &mut Peer,
        stream: Option<&mut Stream>,
        packet: &Packet,
        Decision { port: number, why }: Decision,
    ) {
        let Some(port) = self.ports.get_mut(number as usize) else { return };
        port.add_bytes(u64::from(packet.bytes));
        if self.policy == Policy::Adaptive {
            let takes = u64::from(packet.bytes) * port.ns_per_kib() / 1024;
            port.add_work(packet.now_ns, takes);
            peer.add_work(number as usize, port.ns_per_kib(), packet.now_ns, u64::from(packet.bytes));
        }
        if let Some(stream) = stream {
            if packet.is_last && self.policy == Policy::Adaptive {
                peer.release(stream);
            }
            stream.port = number;
            stream.is_pinned = why == Why::Pinned;
            stream.packets += 1;
        }
    }
}

/// The number whose turn it is.
fn next(turn: &mut u32) -> u32 {
    let now = *turn;
    *turn = turn.wrapping_add(1);
    now
}
