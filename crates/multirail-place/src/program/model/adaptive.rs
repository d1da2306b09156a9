//! The policy `adaptive` (`bpf/adaptive.h` says what it does and why).

use super::port_set::PortSet;
use super::types::{Decision, HostModel, Packet, PeerModel};
use crate::program::layout::*;
use multirail_proto::placement::MAX_PORTS;

/// The length of a frame, for products of 64 bits.
const FRAME: u64 = FRAME_BYTES as u64;

pub(super) fn choose(
    host: &HostModel,
    usable: PortSet,
    peer: &mut PeerModel,
    stream: &mut StreamState,
    packet: &Packet,
) -> Decision {
    if packet.is_tcp == 0 {
        return Decision { port: usable.nth(packet.layer34_hash), reason: REASON_HASH };
    }
    if u64::from(packet.unsent_bytes) > u64::from(BUSY_UNSENT_FRAMES) * FRAME {
        stream.last_busy_ns = packet.now_ns;
    }
    let is_busy = stream.last_busy_ns > 0 && packet.now_ns < stream.last_busy_ns + BUSY_TIMEOUT_NS;
    if is_busy {
        choose_busy(host, usable, peer, stream, packet)
    } else {
        choose_idle(host, usable, peer, stream, packet)
    }
}

/// Decides for a stream that has little to send.
fn choose_idle(host: &HostModel, usable: PortSet, peer: &PeerModel, stream: &StreamState, packet: &Packet) -> Decision {
    let has_in_flight = packet.in_flight_segments > 0;
    let allowed = PortSet(stream.allowed_ports);
    let stays = has_in_flight || packet.now_ns < stream.last_busy_ns + SLOT_TIMEOUT_NS;
    if stays && allowed == PortSet::only(stream.port) && usable.contains(stream.port) {
        return Decision { port: stream.port, reason: REASON_PINNED };
    }
    let still_allowed = PortSet(allowed.0 & usable.0);
    let is_limited = stream.max_ports > 0 && has_in_flight && still_allowed.len() > 0;
    let candidates = if is_limited { still_allowed } else { usable };
    Decision { port: best_port(host, candidates, peer, stream, packet, 0), reason: REASON_EARLIEST }
}

/// Decides for a stream that has much to send.
fn choose_busy(
    host: &HostModel,
    usable: PortSet,
    peer: &mut PeerModel,
    stream: &mut StreamState,
    packet: &Packet,
) -> Decision {
    check_duplicates(stream, packet);
    let Some(allowed) = allowed_ports(host, usable, peer, stream, packet) else {
        // All slots are taken.
        let stays = stream.packets > 0 && packet.in_flight_segments > 0 && usable.contains(stream.port);
        let best = || best_port(host, usable, peer, stream, packet, TIE_FRAMES);
        let port = if stays { stream.port } else { best() };
        stream.allowed_ports = PortSet::only(port).0;
        return Decision { port, reason: REASON_PINNED };
    };
    stream.allowed_ports = allowed.0;
    let reason = if allowed.len() > 1 { REASON_SPREAD } else { REASON_PINNED };
    Decision { port: best_port(host, allowed, peer, stream, packet, TIE_FRAMES), reason }
}

fn best_port(
    host: &HostModel,
    candidates: PortSet,
    peer: &PeerModel,
    stream: &StreamState,
    packet: &Packet,
    tie_frames: u32,
) -> u32 {
    let ns_per_kib = |port: u32| peer.path_ns_per_kib(host, port);
    let send_ns = |port: u32| u64::from(packet.bytes) * ns_per_kib(port) / 1024;
    let free_at_ns = |port: u32| {
        let port = port as usize;
        packet.now_ns.max(host.state.free_at_ns[port]).max(peer.state.free_at_ns[port])
    };
    let finish_ns = |port: u32| free_at_ns(port) + send_ns(port);
    let first_ns = candidates.iter().map(finish_ns).min().expect("there is a candidate");
    let is_tie = |port: &u32| finish_ns(*port) <= first_ns + u64::from(tie_frames) * FRAME * ns_per_kib(*port) / 1024;
    let count = host.ports.len() as u32;
    let in_turn = (stream.port + 1..=stream.port + count).map(|port| port % count);
    in_turn
        .filter(|port| candidates.contains(*port) && is_tie(port))
        .min_by_key(|port| peer.service_ns(*port as usize, ns_per_kib(*port)) + send_ns(*port))
        .expect("the port that finishes first is a tie with itself")
}

/// The ports that a busy stream may use; none if all slots are taken.
fn allowed_ports(
    host: &HostModel,
    usable: PortSet,
    peer: &mut PeerModel,
    stream: &mut StreamState,
    packet: &Packet,
) -> Option<PortSet> {
    let (count, now_ns) = (usable.len(), packet.now_ns);
    if stream.id == 0 {
        peer.state.last_stream_id = peer.state.last_stream_id.wrapping_add(1);
        stream.id = peer.state.last_stream_id;
    }
    if peer.state.slots_counted_ns + COUNT_INTERVAL_NS < now_ns {
        peer.count_slots(now_ns);
        peer.state.slow_ports = peer.slow_ports(host, usable).0;
    }
    if !peer.take_slot(stream, count) {
        return None;
    }
    peer.state.slots[stream.slot as usize].last_busy_ns = now_ns;
    peer.state.busy_slots |= 1 << stream.slot;
    peer.state.reserved_slots |= 1 << stream.slot;
    let port = usable.nth(stream.slot);
    if peer.state.busy_slots.count_ones() >= count && !PortSet(peer.state.slow_ports).contains(port) {
        return Some(PortSet::only(port));
    }
    if stream.max_ports == 0 || stream.max_ports >= count {
        return Some(usable);
    }
    let from = packet.layer34_hash % (count - stream.max_ports + 1);
    Some(usable.iter().skip(from as usize).take(stream.max_ports as usize).collect())
}

fn check_duplicates(stream: &mut StreamState, packet: &Packet) {
    let segments = packet.segments.wrapping_sub(stream.checked_segments);
    let duplicates = packet.duplicates.wrapping_sub(stream.checked_duplicates);
    if packet.now_ns < stream.checked_ns + CHECK_INTERVAL_NS || segments < MIN_CHECK_SEGMENTS {
        return;
    }
    let port_count = PortSet(stream.allowed_ports).len();
    if stream.checked_ns > 0 && port_count > 0 {
        if duplicates > segments / MAX_DUPLICATE_RATIO {
            stream.failed_checks += 1;
            stream.passed_checks = 0;
        } else {
            stream.failed_checks = 0;
            stream.passed_checks += 1;
        }
        if stream.failed_checks >= FAILED_CHECKS_TO_NARROW {
            stream.max_ports = (port_count / 2).max(1);
            stream.failed_checks = 0;
        } else if stream.max_ports > 0 && stream.passed_checks >= PASSED_CHECKS_TO_WIDEN {
            stream.max_ports = if stream.max_ports as usize >= MAX_PORTS { 0 } else { 2 * stream.max_ports };
            stream.passed_checks = 0;
        }
    }
    stream.checked_ns = packet.now_ns;
    stream.checked_segments = packet.segments;
    stream.checked_duplicates = packet.duplicates;
}

impl PeerModel {
    fn count_slots(&mut self, now_ns: u64) {
        let slots = self.state.slots;
        let within = |timeout_ns: u64| {
            let is_within =
                |slot: &usize| slots[*slot].last_busy_ns > 0 && now_ns < slots[*slot].last_busy_ns + timeout_ns;
            (0..slots.len()).filter(is_within).fold(0, |mask, slot| mask | 1 << slot)
        };
        (self.state.busy_slots, self.state.reserved_slots) = (within(COUNT_TIMEOUT_NS), within(SLOT_TIMEOUT_NS));
        self.state.slots_counted_ns = now_ns;
    }

    /// Gives the stream a slot, and says whether there was one.
    fn take_slot(&mut self, stream: &mut StreamState, port_count: u32) -> bool {
        let (free, has_slot) = (self.state.reserved_slots.trailing_ones(), self.has_slot(stream));
        if has_slot && (stream.slot < port_count || free >= port_count) {
            return true;
        }
        if free >= SLOTS {
            return false;
        }
        self.release_slot(stream);
        self.state.slots[free as usize].stream_id = stream.id;
        stream.slot = free;
        true
    }

    fn has_slot(&self, stream: &StreamState) -> bool {
        stream.id > 0 && self.state.slots[stream.slot as usize].stream_id == stream.id
    }

    /// Frees the stream's slot, if it has one.
    pub(super) fn release_slot(&mut self, stream: &StreamState) {
        if self.has_slot(stream) {
            self.state.slots[stream.slot as usize] = slot::default();
            self.state.busy_slots &= !(1 << stream.slot);
            self.state.reserved_slots &= !(1 << stream.slot);
        }
    }

    fn service_ns(&self, port: usize, ns_per_kib: u64) -> u64 {
        let max_lag_ns = u64::from(MAX_LAG_FRAMES) * FRAME * ns_per_kib / 1024;
        self.state.service_ns[port].max(self.state.max_service_ns.saturating_sub(max_lag_ns))
    }

    /// Adds a packet to the service of a port of this host, which takes `ns_per_kib`.
    pub(super) fn add_service(&mut self, port: usize, ns_per_kib: u64, packet: &Packet) {
        let (bytes, path) = (u64::from(packet.bytes), ns_per_kib.max(self.entry.ns_per_kib[port].into()));
        if path > ns_per_kib {
            self.state.free_at_ns[port] = packet.now_ns.max(self.state.free_at_ns[port]) + bytes * path / 1024;
        }
        self.state.service_ns[port] = self.service_ns(port, path) + bytes * path / 1024;
        self.state.max_service_ns = self.state.max_service_ns.max(self.state.service_ns[port]);
    }

    fn path_ns_per_kib(&self, host: &HostModel, port: u32) -> u64 {
        host.state.ns_per_kib[port as usize].max(self.entry.ns_per_kib[port as usize].into())
    }

    fn slow_ports(&self, host: &HostModel, usable: PortSet) -> PortSet {
        let ns_per_kib = |port: u32| self.path_ns_per_kib(host, port);
        let fastest = usable.iter().map(ns_per_kib).min().unwrap_or(0);
        (0..MAX_PORTS as u32).filter(|port| ns_per_kib(*port) >= fastest + fastest / 4).collect()
    }
}
