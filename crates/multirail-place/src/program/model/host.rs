//! The decision, as in `bpf/decide.h`.

use super::adaptive;
use super::port_set::PortSet;
use super::types::{Decision, HostModel, Packet, PeerModel};
use crate::program::layout::*;
use multirail_proto::placement::Policy;

impl HostModel {
    /// The port for a packet to `peer`; none if no port works at both ends.
    pub(super) fn decide(
        &mut self,
        peer: &mut PeerModel,
        stream: &mut StreamState,
        packet: &Packet,
    ) -> Option<Decision> {
        let usable = PortSet(self.config.usable_ports & peer.entry.usable_ports);
        if usable.len() == 0 {
            return None;
        }
        if packet.has_queues != 0 {
            self.update_ports(packet);
        }
        let decision = match self.policy {
            Policy::Single => Decision { port: usable.nth(0), reason: REASON_FIRST_PORT },
            Policy::Layer2 => Decision { port: usable.nth(packet.layer2_hash), reason: REASON_HASH },
            Policy::Layer34 => Decision { port: usable.nth(packet.layer34_hash), reason: REASON_HASH },
            Policy::RoundRobin => {
                Decision { port: usable.nth(next(&mut self.state.next_packet)), reason: REASON_ROUND_ROBIN }
            }
            Policy::Backlog => self.choose_by_backlog(usable, stream, packet),
            Policy::Adaptive => adaptive::choose(self, usable, peer, stream, packet),
        };
        self.account(peer, stream, packet, decision);
        Some(decision)
    }

    /// PMCME, section 3.2.
    fn choose_by_backlog(&mut self, usable: PortSet, stream: &StreamState, packet: &Packet) -> Decision {
        if stream.pinned != 0 && usable.contains(stream.port) {
            return Decision { port: stream.port, reason: REASON_PINNED };
        }
        if packet.is_tcp != 0 && packet.backlog_bytes > self.config.threshold_bytes {
            return Decision { port: usable.nth(next(&mut self.state.next_stream)), reason: REASON_PINNED };
        }
        Decision { port: usable.nth(next(&mut self.state.next_packet)), reason: REASON_ROUND_ROBIN }
    }

    fn account(&mut self, peer: &mut PeerModel, stream: &mut StreamState, packet: &Packet, decision: Decision) {
        let Decision { port, reason } = decision;
        let port_state = &mut self.port_states[port as usize];
        port_state.packets += 1;
        port_state.bytes += u64::from(packet.bytes);
        if self.policy == Policy::Adaptive {
            let ns_per_kib = self.state.ns_per_kib[port as usize];
            peer.add_service(port as usize, ns_per_kib, packet);
            let free_at_ns = &mut self.state.free_at_ns[port as usize];
            *free_at_ns = packet.now_ns.max(*free_at_ns) + u64::from(packet.bytes) * ns_per_kib / 1024;
            if packet.ends_stream != 0 {
                peer.release_slot(stream);
            }
        }
        stream.port_changes += u64::from(stream.packets > 0 && stream.port != port);
        stream.port = port;
        stream.reason = reason.into();
        stream.pinned = u32::from(reason == REASON_PINNED);
        stream.packets += 1;
        stream.bytes += u64::from(packet.bytes);
    }
}

/// Increments a round-robin counter and returns its former value.
fn next(counter: &mut u32) -> u32 {
    let value = *counter;
    *counter = counter.wrapping_add(1);
    value
}
