//! The control connection's bytes: packets that wait to be written, and a packet that is arriving.

use super::failure::Violation;
use crate::wire::{Control, MAX_PACKET_BYTES, packet};

/// Reports are put off while this much waits to be written: the peer does not read them, and the
/// next one says everything that they would.
const MAX_OUTPUT_BYTES: usize = MAX_PACKET_BYTES;

/// Both directions of the control connection, which carries no data, so that no report waits
/// behind a message.
#[derive(Debug, Default)]
pub(super) struct ControlLink {
    connected: bool,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl ControlLink {
    /// A new connection replaces the old one and what that carried.
    pub(super) fn connect(&mut self) {
        *self = Self { connected: true, ..Self::default() };
    }

    /// The connection is lost.
    pub(super) fn lose(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether so much waits to be written that reports should wait, too.
    pub(super) fn is_full(&self) -> bool {
        self.outgoing.len() >= MAX_OUTPUT_BYTES
    }

    /// Queues a packet. Without a connection it is dropped, since the next connection starts with
    /// everything that matters.
    pub(super) fn queue(&mut self, packet: &Control) {
        if self.connected {
            packet::encode(packet, &mut self.outgoing);
        }
    }

    /// What waits to be written.
    pub(super) fn output(&self) -> &[u8] {
        &self.outgoing
    }

    /// Notes that `bytes` were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.outgoing.drain(..bytes);
    }

    /// Adds bytes that have arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// The next packet, if all of it has arrived.
    pub(super) fn next_packet(&mut self) -> Result<Option<Control>, Violation> {
        let Some((packet, length)) = packet::decode(&self.incoming)? else { return Ok(None) };
        self.incoming.drain(..length);
        Ok(Some(packet))
    }
}
