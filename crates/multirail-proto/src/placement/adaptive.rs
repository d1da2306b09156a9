//! `adaptive`: each pair of hosts uses all ports between them evenly, and a stream as few of them as that allows.
//!
//! PMCME keeps a busy stream on one port, so fewer busy streams than ports leave ports idle; and it counts streams, not bytes. Here:
//!
//! - A stream with little to send goes, packet by packet, by the port that is free first.
//! - A stream of which something waits to be sent is busy: it could use more than it has. While there are fewer busy streams to a peer than ports, each
//!   may use all of them; from as many streams as ports on, each has a slot, which stands for a port, and is not reordered.
//! - A program that comes late is not idle: its stream keeps its port while anything of it is on the way, and for a second. But it
//!   counts as busy for a quarter of that only, so that the ports of streams that have ended without a word are used soon.
//! - Of its ports a stream uses that which would finish the packet first; of those that do so hardly later, that which has worked
//!   least for this peer. So not only this host's ports are used evenly, but the peer's, too, whatever other hosts send it: each
//!   of them does the same.
//! - A port is as slow as the slower of its two ends, as the other host tells of its own: of several senders to a slow port, none has
//!   anything waiting, so none would find out.
//! - No stream is kept to a port that is clearly slower than the fastest one: it would starve. It may use all ports.
//! - A stream whose receiver tells of too many segments that came twice, because it took reordering for loss, gets fewer ports.
//! - A stream that is one too many for the ports changes its port only when nothing of it is on the way.

use super::model::{Decision, Packet, Peer, Stream, Why};
use super::ports::{Mask, Port};
use super::{FRAME_BYTES, MAX_PORTS, MS, SLOTS};

/// A stream is no longer busy after this,
const IDLE_NS: u64 = 50 * MS;
/// no longer counts among its peer's busy ones after this,
const COUNTED_NS: u64 = 250 * MS;
/// and has its slot and its port until this.
const KEEP_NS: u64 = 1_000 * MS;
/// A stream is busy if more than this waits to be sent.
const WAITING_FRAMES: u64 = 2;
/// How often the busy streams to a peer are counted.
const COUNT_NS: u64 = 4 * MS;
/// How often a stream's reordering is judged,
const JUDGE_NS: u64 = 250 * MS;
/// if it has sent so many segments since,
const JUDGE_SEGMENTS: u32 = 256;
/// and of how many one may come twice.
const BEARABLE: u32 = 4;
/// It gets fewer ports after so many bad judgements in a row,
const BAD: u32 = 4;
/// and more after so many good ones.
const GOOD: u32 = 8;
/// A port that finishes a packet so many of its frames later than the first is as good.
const ALIKE_FRAMES: u64 = 2;
/// How far a port may be behind the one that has worked most for a peer.
const BEHIND_FRAMES: u64 = 64;

pub(super) fn decide(
    ports: &[Port],
    usable: Mask,
    peer: &mut Peer,
    stream: Option<&mut Stream>,
    packet: &Packet,
) -> Decision {
    let Some(stream) = stream.filter(|_| packet.is_tcp) else {
        return Decision { port: usable.nth(packet.hash34), why: Why::Hash };
    };
    if !is_busy(stream, packet) {
        if is_kept(usable, stream, packet) {
            return Decision { port: stream.port, why: Why::Pinned };
        }
        // Where its receiver bears only so many ports, what is on the way must not be overtaken either.
        let kept = if stream.width > 0 && packet.in_flight > 0 { stream.ports.and(usable) } else { Mask::default() };
        let wanted = if kept.count() > 0 { kept } else { usable };
        return Decision { port: best(ports, wanted, peer, stream.port, packet, 0), why: Why::Least };
    }
    judge(stream, packet);
    stream.ports = share(ports, usable, peer, stream, packet);
    if stream.ports.count() > 0 {
        let port = best(ports, stream.ports, peer, stream.port, packet, ALIKE_FRAMES);
        return Decision { port, why: if stream.ports.count() > 1 { Why::Spread } else { Why::Pinned } };
    }
    // One more than there are slots: it stays where it is until nothing of it is on the way.
    let stays = stream.packets > 0 && packet.in_flight > 0 && usable.has(stream.port);
    let port = if stays { stream.port } else { best(ports, usable, peer, stream.port, packet, ALIKE_FRAMES) };
    stream.ports = Mask(1 << port);
    Decision { port, why: Why::Pinned }
}

/// A stream that was kept to one port, and whose program only comes late, is not to overtake itself.
fn is_kept(usable: Mask, stream: &Stream, packet: &Packet) -> bool {
    stream.ports == Mask(1 << stream.port)
        && usable.has(stream.port)
        && (packet.in_flight > 0 || stream.busy_ns + KEEP_NS > packet.now_ns)
}

/// A stream of which something waits, or did just now, could use more than it has.
fn is_busy(stream: &mut Stream, packet: &Packet) -> bool {
    if u64::from(packet.unsent_bytes) > WAITING_FRAMES * FRAME_BYTES {
        stream.busy_ns = packet.now_ns;
    }
    stream.busy_ns > 0 && stream.busy_ns + IDLE_NS > packet.now_ns
}

/// The port of `wanted` that finishes the packet first; of those that do within `alike_frames` of their own of it, that which has
/// worked least for the peer.
/// Of ports alike in everything, the next after the stream's last one.
fn best(ports: &[Port], wanted: Mask, peer: &Peer, last: u32, packet: &Packet, alike_frames: u64) -> u32 {
    let pair_ns = |port: u32| peer.pair_ns_per_kib(port as usize, ns_per_kib(ports, port));
    let takes_ns = |port: u32| u64::from(packet.bytes) * pair_ns(port) / 1024;
    let free_ns = |port: u32| ports[port as usize].free_ns(packet.now_ns).max(peer.free_ns[port as usize]);
    let finish_ns = |port: u32| free_ns(port) + takes_ns(port);
    let count = ports.len() as u32;
    let Some(first) = wanted.ports().filter(|port| *port < count).min_by_key(|port| finish_ns(*port)) else { return 0 };
    let until_ns = |port: u32| finish_ns(first) + alike_frames * FRAME_BYTES * pair_ns(port) / 1024;
    let in_turn = (last + 1..last + 1 + count).map(|port| port % count);
    in_turn
        .filter(|port| wanted.has(*port) && finish_ns(*port) <= until_ns(*port))
        .min_by_key(|port| peer.given(*port as usize, pair_ns(*port)) + takes_ns(*port))
        .unwrap_or(first)
}

/// The ports that a busy stream may use: all, as long as there are fewer busy streams to this peer than ports; one for each from then on.
/// Nothing, if there are more than slots. All, too, for one whose port were a slow one.
fn share(host: &[Port], usable: Mask, peer: &mut Peer, stream: &mut Stream, packet: &Packet) -> Mask {
    let (ports, now_ns) = (usable.count(), packet.now_ns);
    if stream.number == 0 {
        peer.streams = peer.streams.wrapping_add(1);
        stream.number = peer.streams;
    }
    if peer.counted_ns + COUNT_NS < now_ns {
        peer.recount(now_ns);
        peer.slow = peer.slow_ports(host, usable);
    }
    if !peer.take_slot(stream, ports) {
        return Mask::default();
    }
    peer.busy_ns[stream.slot as usize] = now_ns;
    peer.busy |= 1 << stream.slot;
    peer.held |= 1 << stream.slot;
    let port = usable.nth(stream.slot);
    if peer.busy.count_ones() >= ports && !peer.slow.has(port) {
        return Mask(1 << port);
    }
    if stream.width == 0 || stream.width >= ports {
        return usable;
    }
    // Not all from the same port on.
    let from = packet.hash34 % (ports - stream.width + 1);
    Mask(usable.ports().skip(from as usize).take(stream.width as usize).fold(0, |mask, port| mask | 1 << port))
}

/// Fewer ports for a stream whose receiver tells of too many segments that came twice, and more again when it has got better.
fn judge(stream: &mut Stream, packet: &Packet) {
    let segments = packet.segments.wrapping_sub(stream.segments);
    let duplicates = packet.duplicates.wrapping_sub(stream.duplicates);
    if stream.judged_ns + JUDGE_NS > packet.now_ns || segments < JUDGE_SEGMENTS {
        return;
    }
    if stream.judged_ns > 0 && stream.ports.count() > 0 {
        let is_bad = duplicates > segments / BEARABLE;
        (stream.bad, stream.good) = if is_bad { (stream.bad + 1, 0) } else { (0, stream.good.saturating_add(1)) };
        if stream.bad >= BAD {
            stream.width = (stream.ports.count() / 2).max(1);
            stream.bad = 0;
        } else if stream.width > 0 && stream.good >= GOOD {
            stream.width = if stream.width as usize >= MAX_PORTS { 0 } else { 2 * stream.width };
            stream.good = 0;
        }
    }
    stream.judged_ns = packet.now_ns;
    stream.segments = packet.segments;
    stream.duplicates = packet.duplicates;
}

impl Peer {
    fn recount(&mut self, now_ns: u64) {
        let slots = |lasts_ns: u64| {
            let is_in = |slot: &usize| self.busy_ns[*slot] > 0 && self.busy_ns[*slot] + lasts_ns > now_ns;
            (0..SLOTS).filter(is_in).fold(0, |mask, slot| mask | 1 << slot)
        };
        (self.busy, self.held) = (slots(COUNTED_NS), slots(KEEP_NS));
        self.counted_ns = now_ns;
    }

    /// Whether the stream has a slot; one of the first, of which each is another port's, if there is one.
    fn take_slot(&mut self, stream: &mut Stream, ports: u32) -> bool {
        let (free, has) = (self.held.trailing_ones(), self.has_slot(stream));
        if has && (stream.slot < ports || free >= ports) {
            return true;
        }
        if free as usize >= SLOTS {
            return false;
        }
        self.release(stream);
        self.holders[free as usize] = stream.number;
        stream.slot = free;
        true
    }

    fn has_slot(&self, stream: &Stream) -> bool {
        stream.number > 0 && self.holders[stream.slot as usize] == stream.number
    }

    /// Takes the stream's slot from it, if it has one.
    pub(super) fn release(&mut self, stream: &Stream) {
        if self.has_slot(stream) {
            let slot = stream.slot as usize;
            (self.holders[slot], self.busy_ns[slot]) = (0, 0);
            self.busy &= !(1 << slot);
            self.held &= !(1 << slot);
        }
    }

    /// How long a port has worked for this peer. One that was idle, or away, does not get all that it missed.
    fn given(&self, port: usize, ns_per_kib: u64) -> u64 {
        let behind = BEHIND_FRAMES * FRAME_BYTES * ns_per_kib / 1024;
        self.given_ns[port].max(self.most_ns.saturating_sub(behind))
    }

    /// `ns_per_kib`: of this host's port. Where the peer's is the slower one, its queue is not seen.
    pub(super) fn add_work(&mut self, port: usize, ns_per_kib: u64, now_ns: u64, bytes: u64) {
        let ns = self.pair_ns_per_kib(port, ns_per_kib);
        if ns > ns_per_kib {
            self.free_ns[port] = self.free_ns[port].max(now_ns) + bytes * ns / 1024;
        }
        self.given_ns[port] = self.given(port, ns) + bytes * ns / 1024;
        self.most_ns = self.most_ns.max(self.given_ns[port]);
    }

    /// What a KiB needs by this port: here or there, whichever is slower.
    fn pair_ns_per_kib(&self, port: usize, here: u64) -> u64 {
        self.ns_per_kib[port].max(here)
    }

    /// Of the ports that lead to the peer, those that need a quarter more than the fastest, or still more.
    fn slow_ports(&self, host: &[Port], usable: Mask) -> Mask {
        let rate = |port: &u32| self.pair_ns_per_kib(*port as usize, ns_per_kib(host, *port));
        let least = usable.ports().map(|port| rate(&port)).min().unwrap_or(0);
        let slow = Mask::first(MAX_PORTS).ports().filter(|port| rate(port) >= least + least / 4);
        Mask(slow.fold(0, |mask, port| mask | 1 << port))
    }
}

fn ns_per_kib(ports: &[Port], port: u32) -> u64 {
    ports.get(port as usize).map_or(0, Port::ns_per_kib)
}
