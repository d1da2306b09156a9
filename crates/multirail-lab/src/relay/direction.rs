//! One direction of a relayed rail: its link model and its packets in flight.

use crate::relay::link::{RelayLink, Segments};
use crate::relay::ring::{PacketRing, RingPiece};
use crate::relay::segment::{HEADERS_MAX_BYTES, Layout, VNET_BYTES};
use crate::relay::shared::{SharedDirection, count};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) struct DirectionQueue {
    /// The index of the direction in the shared memory.
    pub(crate) direction: usize,
    link: RelayLink,
    pub(crate) ring: PacketRing,
}

impl DirectionQueue {
    pub(crate) fn new(direction: usize, seed: u64) -> io::Result<Self> {
        Ok(Self { direction, link: RelayLink::new(seed), ring: PacketRing::new()? })
    }

    /// Handles a packet that has been written to the room of the ring.
    pub(crate) fn handle_packet(&mut self, bytes: usize, now_ns: u64, shared: &SharedDirection) {
        let Self { link, ring, .. } = self;
        let at = ring.keep(bytes);
        let segments = segments(ring.packet(at, bytes));
        let mut is_kept = false;
        let mut no_room = 0;
        let discarded = link.handle_packet(now_ns, &shared.params(), segments, |piece| {
            let piece = RingPiece {
                departs_ns: piece.departs_ns,
                at,
                bytes: bytes as u32,
                first: piece.first,
                count: piece.count,
                is_whole: piece.count == segments.count,
            };
            if ring.push(piece) {
                is_kept = true;
            } else {
                no_room += piece.count;
            }
        });
        if !is_kept {
            ring.discard(at);
        }
        count(&shared.arrived_packets, segments.count.into());
        count(&shared.arrived_bytes, segments.bytes(0, segments.count));
        count(&shared.dropped_packets, (discarded.dropped + no_room).into());
        count(&shared.lost_packets, discarded.lost.into());
        if link.queued_packets() > shared.queue_peak_packets.load(Relaxed) {
            shared.queue_peak_packets.store(link.queued_packets(), Relaxed);
        }
    }

    /// Handles a copy of a packet from a switch.
    pub(crate) fn handle_copy(&mut self, parts: &[&[u8]; 2], now_ns: u64, shared: &SharedDirection) {
        let bytes = parts[0].len() + parts[1].len();
        let Some(room) = self.ring.room(bytes) else {
            count(&shared.arrived_packets, 1);
            count(&shared.dropped_packets, 1);
            return;
        };
        let (first, second) = room.split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
        self.handle_packet(bytes, now_ns, shared);
    }

    /// Sends all pieces that are due. Calls `send` with the two parts of each packet, headers and
    /// payload, and with its time of departure.
    pub(crate) fn send_due(
        &mut self,
        now_ns: u64,
        directions: &[SharedDirection],
        mut send: impl FnMut(&[&[u8]; 2], u64),
    ) {
        let shared = &directions[self.direction];
        while let Some((piece, packet)) = self.ring.due(now_ns) {
            let mut headers = [0; HEADERS_MAX_BYTES];
            let layout = if piece.is_whole { None } else { Layout::of(packet) };
            if let Some(layout) = layout {
                let (header_bytes, payload) = layout.part(packet, piece.first, piece.count, &mut headers);
                send(&[&headers[..header_bytes], &packet[payload]], piece.departs_ns);
            } else {
                send(&[packet, &[]], piece.departs_ns);
            }
            let segments = segments(packet);
            count(&shared.carried_packets, piece.count.into());
            count(&shared.carried_bytes, segments.bytes(piece.first, piece.first + piece.count));
            self.ring.pop();
        }
    }
}

fn segments(packet: &[u8]) -> Segments {
    match Layout::of(packet) {
        Some(layout) => layout.segments(),
        None => Segments::one(packet.len().saturating_sub(VNET_BYTES) as u32),
    }
}
