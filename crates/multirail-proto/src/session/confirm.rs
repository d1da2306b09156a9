//! What the peer's reports confirm, and what follows from them: rates, and limits of sockets.

use super::action::Action;
use super::channel::SessionChannel;
use super::failure::Violation;
use super::limits::PROBE_BYTES;
use super::path::Paths;
use super::send::Sending;
use super::serial::serial_less;
use crate::wire::Report;
use std::collections::VecDeque;

impl Sending {
    /// Takes in what the peer has received.
    pub(super) fn confirm(
        &mut self,
        channels: &mut [SessionChannel],
        report: &Report,
        paths: &dyn Paths,
        actions: &mut VecDeque<Action>,
    ) -> Result<(), Violation> {
        for row in &report.channels {
            let Some(index) = channels.iter().position(|c| c.id == row.channel && c.up) else { continue };
            let tx = &mut channels[index].tx;
            if row.position > tx.written {
                return Err(Violation::UnsentBytesConfirmed { position: row.position, written: tx.written });
            }
            tx.confirmed = tx.confirmed.max(row.position);
            while tx.in_flight.front().is_some_and(|r| r.end <= tx.confirmed) {
                tx.in_flight.pop_front();
            }
            tx.rate.report(row.busy_bytes, row.busy_us);
            if tx.rate.outruns_reader() && tx.confirmed >= u64::from(PROBE_BYTES) {
                tx.rate.delivered(paths.info(index).delivery_bytes_s);
            }
        }
        self.follow_rates(channels, paths, actions);
        let (below, sent) = (report.completed_below, self.messages.next_message);
        if serial_less(sent, below) {
            return Err(Violation::UnsentMessageConfirmed { below, sent });
        }
        self.messages.confirm_below(below);
        Ok(())
    }

    /// Adapts each socket's unsent bytes to its channel's rate, and runs to its buffer.
    pub(super) fn follow_rates(
        &self,
        channels: &mut [SessionChannel],
        paths: &dyn Paths,
        actions: &mut VecDeque<Action>,
    ) {
        for (index, channel) in channels.iter_mut().enumerate().filter(|(_, c)| c.up) {
            channel.tx.set_buffer_bytes(paths.send_buffer_bytes(index));
            let bytes = self.unsent_limit(channel.tx.rate.rate_bytes_s());
            let ratio = f64::from(bytes) / f64::from(channel.tx.unsent_limit);
            if !(0.7..1.5).contains(&ratio) {
                channel.tx.unsent_limit = bytes;
                actions.push_back(Action::LimitUnsent { channel: index, bytes });
            }
        }
    }
}
