//! What a session has done so far, and the state of its rails.

use super::driver::SessionDriver;
use crate::traffic::Part;
use std::net::SocketAddr;

/// What a session has done so far: [`Session::stats`](super::Session::stats).
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Frame headers sent; with `two-ended`, *Start* and *End* messages.
    pub control_messages: u64,
    /// Bytes sent a second time, because a channel was lost or late.
    pub resent_bytes: u64,
    /// Bytes received a second time.
    pub duplicate_bytes: u64,
    /// Bytes of messages that were sent, with those sent a second time.
    pub sent_bytes: u64,
    /// Bytes of messages that were received, with those received a second time.
    pub received_bytes: u64,
}

/// The current state of a rail: [`Session::rails`](super::Session::rails).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RailStatus {
    /// The dialling side's number for the rail.
    pub rail: u32,
    /// Channels that are up.
    pub channels: u32,
    /// The addresses of both ends, this host's first; `None` while the rail is down.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The rate at which the peer received this side's payload, in 10^6 bits per second; 0 before the
    /// first measurement.
    pub rate_mbit_s: f64,
    /// Smoothed round-trip time in microseconds, as the kernel knows it.
    pub rtt_us: u32,
    /// Payload bytes assigned to the rail.
    pub sent_bytes: u64,
    /// Payload bytes received over it.
    pub received_bytes: u64,
}

impl SessionDriver {
    pub(super) fn stats(&self) -> Stats {
        let stats = self.machine.stats();
        Stats {
            control_messages: stats.control_messages,
            resent_bytes: stats.resent_bytes,
            duplicate_bytes: stats.duplicate_bytes,
            sent_bytes: stats.sent_bytes,
            received_bytes: stats.received_bytes,
        }
    }

    /// What the session adds to the process's [`traffic`](crate::traffic::traffic).
    pub(super) fn part(&self) -> Part {
        let Stats { sent_bytes, received_bytes, .. } = self.stats();
        let mut rails: Vec<u32> = self.machine.channels().filter(|c| c.up).map(|c| c.rail).collect();
        rails.sort_unstable();
        rails.dedup();
        Part { rails_up: rails.len() as u64, sent_bytes, received_bytes }
    }

    /// All rails that recently had a channel, by number.
    pub(super) fn rails(&self) -> Vec<RailStatus> {
        let mut rails: Vec<RailStatus> = Vec::new();
        for (index, channel) in self.machine.channels().enumerate() {
            let at = rails.iter().position(|r| r.rail == channel.rail).unwrap_or_else(|| {
                rails.push(RailStatus {
                    rail: channel.rail,
                    channels: 0,
                    addresses: None,
                    rate_mbit_s: 0.0,
                    rtt_us: 0,
                    sent_bytes: 0,
                    received_bytes: 0,
                });
                rails.len() - 1
            });
            let status = &mut rails[at];
            status.sent_bytes += channel.sent_bytes;
            status.received_bytes += channel.received_bytes;
            if let Some(socket) = self.sockets.get(index) {
                status.channels += 1;
                status.addresses = status.addresses.or(socket.addresses().ok());
                status.rate_mbit_s += channel.rate_bytes_s * 8.0 / 1e6;
                status.rtt_us = status.rtt_us.max(channel.rtt_us);
            }
        }
        rails.sort_by_key(|r| r.rail);
        rails
    }
}
