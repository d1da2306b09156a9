//! How fast the ports of this host are, from what their queues have sent (`bpf/rates.h`).

use super::types::{HostModel, Packet};
use crate::program::layout::*;

impl HostModel {
    /// Takes over the queues that were read for this packet.
    pub(super) fn update_ports(&mut self, packet: &Packet) {
        for number in 0..self.ports.len() {
            let (nominal, (before, from)) = (self.ports[number].ns_per_kib, self.port_states.split_at_mut(number));
            let state = &mut from[0];
            state.ns_per_kib = state.ns_per_kib.max(nominal);
            if packet.known_queues >> number & 1 == 0 {
                continue;
            }
            let queue_bytes = packet.queue_bytes[number].into();
            sample_rate(state, nominal, packet.now_ns, queue_bytes);
            let is_similar = |other: &&PortState| other.ns_per_kib.abs_diff(state.ns_per_kib) < state.ns_per_kib / 4;
            if let Some(other) = before.iter().find(is_similar) {
                state.ns_per_kib = other.ns_per_kib;
            }
            let is_slower = state.ns_per_kib > nominal + nominal / 2;
            self.state.ns_per_kib[number] = if is_slower { state.ns_per_kib } else { nominal };
            self.state.free_at_ns[number] = packet.now_ns + queue_bytes * self.state.ns_per_kib[number] / 1024;
        }
        self.state.queues_read_ns = packet.now_ns;
    }
}

fn sample_rate(state: &mut PortState, nominal: u64, now_ns: u64, queue_bytes: u64) {
    let given = state.bytes.wrapping_sub(state.sample_start_bytes);
    let sent = given.wrapping_add(state.sample_start_queue_bytes).wrapping_sub(queue_bytes);
    let elapsed_ns = now_ns.wrapping_sub(state.sample_start_ns);
    let max_sample_ns = u64::from(MAX_SAMPLE_RATIO) * MIN_SAMPLE_NS;
    state.queue_bytes = queue_bytes;
    state.was_idle |= u64::from(queue_bytes == 0);
    let is_enough = sent >= u64::from(MIN_SAMPLE_FRAMES * FRAME_BYTES) || elapsed_ns >= max_sample_ns;
    if elapsed_ns < MIN_SAMPLE_NS || !is_enough {
        return;
    }
    let measured = elapsed_ns.wrapping_mul(1024).checked_div(sent.wrapping_add(1)).unwrap_or(0);
    let sample = measured.clamp(nominal, u64::from(MAX_SLOWDOWN) * nominal);
    if state.was_idle == 0 {
        let fastest = if state.samples == 0 { sample } else { state.fastest_ns_per_kib };
        state.fastest_ns_per_kib = fastest.min(sample);
        state.samples += 1;
        if state.samples >= SAMPLES_PER_RATE.into() {
            state.ns_per_kib = state.fastest_ns_per_kib;
            state.samples = 0;
        }
    } else if sample < state.ns_per_kib - state.ns_per_kib / 4 {
        state.ns_per_kib = sample;
    }
    state.was_idle = u64::from(queue_bytes == 0);
    state.sample_start_ns = now_ns;
    state.sample_start_bytes = state.bytes;
    state.sample_start_queue_bytes = queue_bytes;
}
