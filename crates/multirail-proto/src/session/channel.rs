//! One channel of a session.

use super::channel_rx::RxChannel;
use super::channel_tx::TxChannel;
use super::path::PathInfo;
use super::time::Time;

/// One channel. A lost one stays in the table, so that others keep their place, until no message
/// refers to it.
#[derive(Debug)]
pub(super) struct SessionChannel {
    /// The dialler's number for the channel, never used twice in a session.
    pub(super) id: u32,
    /// The rail on which it was opened.
    pub(super) rail: u32,
    /// Whether it has a connection.
    pub(super) up: bool,
    /// From writing a byte to its arrival on an idle path.
    pub(super) latency_us: f64,
    /// Smoothed round-trip time.
    pub(super) rtt_us: u32,
    pub(super) tx: TxChannel,
    pub(super) rx: RxChannel,
}

impl SessionChannel {
    pub(super) fn new(id: u32, rail: u32, info: &PathInfo, unsent_limit: u32, now: Time) -> Self {
        Self {
            id,
            rail,
            up: true,
            latency_us: f64::from(info.rtt_us) / 2.0,
            rtt_us: info.rtt_us,
            tx: TxChannel::new(unsent_limit, now),
            rx: RxChannel::new(now),
        }
    }

    /// Takes the round-trip times that the kernel has measured.
    pub(super) fn follow_path(&mut self, info: &PathInfo) {
        self.rtt_us = info.rtt_us;
        if info.min_rtt_us > 0 {
            self.latency_us = f64::from(info.min_rtt_us) / 2.0;
        }
    }
}
