//! The sockets of a session's channels, in the order of the machine's table.

use crate::socket::ChannelSocket;
use multirail_proto::session::{PathInfo, Paths};
use std::io;

/// Sockets by the machine's channel index; `None` where a channel is lost.
#[derive(Debug, Default)]
pub(super) struct Sockets(Vec<Option<ChannelSocket>>);

impl Sockets {
    /// Length of the table, lost channels included.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many channels have a socket.
    pub(super) fn up(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// The socket of a channel that is up.
    pub(super) fn get(&self, channel: usize) -> Option<&ChannelSocket> {
        self.0.get(channel)?.as_ref()
    }

    /// The sockets of all channels that are up.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ChannelSocket> {
        self.0.iter().flatten()
    }

    pub(super) fn push(&mut self, socket: ChannelSocket) {
        self.0.push(Some(socket));
    }

    /// Removes the socket of a channel and keeps its place.
    pub(super) fn take(&mut self, channel: usize) -> Option<ChannelSocket> {
        self.0.get_mut(channel)?.take()
    }

    /// Removes the places without a socket.
    pub(super) fn forget_closed(&mut self) {
        self.0.retain(Option::is_some);
    }

    /// Registers all sockets with the calling runtime.
    pub(super) fn move_here(&mut self) -> io::Result<()> {
        for slot in &mut self.0 {
            if let Some(socket) = slot.take() {
                *slot = Some(socket.moved()?);
            }
        }
        Ok(())
    }
}

/// The path of each channel. Each takes a system call. A lost channel is reported as a dead path.
impl Paths for Sockets {
    fn info(&self, channel: usize) -> PathInfo {
        self.get(channel).map_or_else(PathInfo::default, ChannelSocket::info)
    }
    fn unacknowledged_bytes(&self, channel: usize) -> u64 {
        self.get(channel).map_or(0, ChannelSocket::unacknowledged_bytes)
    }
    fn unread_bytes(&self, channel: usize) -> u64 {
        self.get(channel).map_or(0, ChannelSocket::unread_bytes)
    }
    fn send_buffer_bytes(&self, channel: usize) -> Option<u64> {
        self.get(channel)?.send_buffer_bytes()
    }
    fn losses_mean_congestion(&self, channel: usize) -> bool {
        self.get(channel).is_some_and(ChannelSocket::minds_losses)
    }
}
