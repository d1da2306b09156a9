//! One direction of a simulated TCP connection, as a channel of a session uses it.

use crate::network::FlowId;
use multirail_proto::session::{PathInfo, Paths};
use multirail_proto::striping::Channel;

/// The sending host's socket buffer and what is under way.
pub(super) struct Connection {
    pub(super) rail: usize,
    pub(super) flow: FlowId,
    /// Written, and not yet on the wire. The packet that is just leaving comes first.
    unsent: Vec<u8>,
    /// How many bytes at the start of `unsent` have left. They are removed when they outweigh the
    /// rest.
    left_bytes: usize,
    /// Length of the packet that is just leaving; 0 if the wire is idle.
    leaving_bytes: usize,
    /// How many unsent bytes the socket holds.
    pub(super) unsent_limit: usize,
    /// Written and not acknowledged.
    unacknowledged: u64,
    /// When the last packet that has left reaches the other host. None overtakes it.
    pub(super) arrives_us: f64,
    /// The kernel's information about the path.
    pub(super) info: PathInfo,
}

impl Connection {
    pub(super) fn new(rail: usize, flow: FlowId, info: PathInfo) -> Self {
        Self {
            rail,
            flow,
            unsent: Vec::new(),
            left_bytes: 0,
            leaving_bytes: 0,
            unsent_limit: 0,
            unacknowledged: 0,
            arrives_us: 0.0,
            info,
        }
    }

    /// How many bytes the socket takes now, with this part of the rail's queue.
    pub(super) fn room(&self, queue_bytes: usize) -> usize {
        (self.unsent_limit + queue_bytes).saturating_sub(self.unsent_bytes())
    }

    /// Whether everything that was written is acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.unacknowledged == 0
    }

    fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.left_bytes
    }

    /// Takes bytes into the socket.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.unacknowledged += bytes.len() as u64;
    }

    /// Begins the next packet of at most `packet_bytes` if the wire is idle; returns its length.
    pub(super) fn begin_packet(&mut self, packet_bytes: usize) -> Option<u64> {
        if self.leaving_bytes > 0 || self.unsent_bytes() == 0 {
            return None;
        }
        self.leaving_bytes = self.unsent_bytes().min(packet_bytes);
        Some(self.leaving_bytes as u64)
    }

    /// The packet has left; returns its bytes.
    pub(super) fn end_packet(&mut self) -> Vec<u8> {
        let end = self.left_bytes + std::mem::take(&mut self.leaving_bytes);
        let bytes = self.unsent[self.left_bytes..end].to_vec();
        self.left_bytes = end;
        if self.left_bytes > self.unsent.len() / 2 {
            self.unsent.drain(..self.left_bytes);
            self.left_bytes = 0;
        }
        bytes
    }

    /// The receiving kernel has acknowledged this many bytes.
    pub(super) fn acknowledge(&mut self, bytes: u64) {
        self.unacknowledged -= bytes;
    }
}

/// What one host's kernel knows of its connections.
pub(super) struct Kernel<'a> {
    /// What the host sends on.
    pub(super) connections: &'a [Connection],
    /// Connections by the machine's index of the channel.
    pub(super) table: &'a [Option<usize>],
}

impl Kernel<'_> {
    fn connection(&self, channel: Channel) -> Option<&Connection> {
        self.table[channel].map(|connection| &self.connections[connection])
    }
}

impl Paths for Kernel<'_> {
    fn info(&self, channel: Channel) -> PathInfo {
        self.connection(channel).map_or_else(PathInfo::default, |c| c.info)
    }
    fn unacknowledged_bytes(&self, channel: Channel) -> u64 {
        self.connection(channel).map_or(0, |c| c.unacknowledged)
    }
    fn unread_bytes(&self, _: Channel) -> u64 {
        0
    }
    /// The buffer is never the path's limit.
    fn send_buffer_bytes(&self, _: Channel) -> Option<u64> {
        None
    }
    fn losses_mean_congestion(&self, _: Channel) -> bool {
        false
    }
}
