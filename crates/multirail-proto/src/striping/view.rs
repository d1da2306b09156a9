//! The state of a channel for a strategy.

/// The index of a channel in the session's table of channels. It is not reused within a message.
pub type Channel = usize;

/// The state of a channel when the driver asks for its next run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChannelView {
    /// Whether the channel can carry data.
    pub up: bool,
    /// The rate at which bytes arrived while the channel was busy, as the receiver measured it; 0
    /// if it is unknown.
    pub rate_bytes_s: f64,
    /// The time from writing a byte on an empty channel to its arrival: half a round trip and the
    /// delay in the hosts.
    pub latency_us: f64,
    /// Bytes that leave this host before a byte that is written now: claimed, and probably not yet
    /// sent. See `ChannelView::set_backlog`.
    pub backlog_bytes: u64,
    /// Bytes that the channel's socket accepts at once. The rest of a longer run would wait in this
    /// process, and the next message behind it.
    pub max_run_bytes: u64,
}

impl ChannelView {
    /// Computes the backlog from the bytes that are claimed and not acknowledged, and from how long
    /// there have been any without a break.
    ///
    /// Of a busy channel's unacknowledged bytes, as many as fit into a round trip are under way or
    /// have arrived, and do not delay what is written now. Counted as backlog, they would make a
    /// distant rail look one round trip more distant. On a channel that has just become busy
    /// nothing is under way, so all of its bytes count.
    pub(crate) fn set_backlog(&mut self, unacknowledged_bytes: u64, busy_us: f64) {
        let under_way = self.rate_bytes_s / 1e6 * busy_us.min(2.0 * self.latency_us);
        self.backlog_bytes = unacknowledged_bytes.saturating_sub(under_way as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_under_way_do_not_count_as_backlog() {
        let mut view = ChannelView {
            up: true,
            rate_bytes_s: 1e6,
            latency_us: 10_000.0,
            backlog_bytes: 0,
            max_run_bytes: u64::MAX,
        };
        for (busy_us, backlog_bytes) in [(0.0, 50_000), (5_000.0, 45_000), (20_000.0, 30_000), (1e9, 30_000)] {
            view.set_backlog(50_000, busy_us);
            assert_eq!(view.backlog_bytes, backlog_bytes);
        }
        view.set_backlog(100, 1e9);
        assert_eq!(view.backlog_bytes, 0);
    }
}
