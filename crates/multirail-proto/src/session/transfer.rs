//! What the application's calls ask for: messages to send, and the message that is due.

use super::channel::SessionChannel;
use super::close::ReceiveEnd;
use super::early::Piece;
use super::failure::Failure;
use super::limits::PROBE_BYTES;
use super::machine::Machine;
use super::path::Paths;
use super::receive::{Decision, ReceiveStep};
use super::send::Transmit;
use super::time::Time;
use crate::striping::{Channel, Strategy};
use std::time::Duration;

/// Sending.
impl Machine {
    /// Uses this strategy for messages that begin from now on.
    pub fn set_strategy(&mut self, strategy: Strategy, fragment_bytes: u32, paths: &dyn Paths) {
        self.sending.strategy = strategy;
        self.sending.fragment_bytes = fragment_bytes.max(1);
        self.sending.follow_rates(&mut self.channels, paths, &mut self.actions);
    }

    /// Whether a message of this length can begin now. Otherwise wait until the current message is
    /// claimed, or the peer has confirmed earlier ones.
    pub fn can_begin(&self, total_bytes: u64) -> bool {
        !self.channels.is_empty() && self.sending.messages.can_begin(total_bytes)
    }

    /// Begins a message and returns its serial number; [`Machine::can_begin`] must be true.
    ///
    /// `copy` has the message's bytes, unless they are in the memory of a caller who waits for the
    /// peer's confirmation. `grain_bytes` is what cuts are rounded to.
    pub fn begin_message(
        &mut self,
        now: Time,
        total_bytes: u64,
        copy: Option<Vec<u8>>,
        grain_bytes: u64,
        paths: &dyn Paths,
    ) -> u32 {
        self.sending.begin(&mut self.channels, total_bytes, copy, grain_bytes, paths, now)
    }

    /// Further messages follow the next one without a pause. So that all of them finish early, it also goes
    /// over channels that would bring it late alone.
    pub fn more_is_behind(&mut self) {
        self.sending.more_is_behind = true;
    }

    /// An empty buffer for the copy of a message of `bytes`.
    pub fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        self.sending.messages.buffer(bytes)
    }

    /// Whether some message is current: begun, and not yet claimed if it is a copy, or not yet
    /// confirmed if it is not.
    pub fn has_current(&self) -> bool {
        self.sending.messages.current.is_some()
    }

    /// Whether this message is the current one.
    pub fn is_current(&self, message: u32) -> bool {
        self.sending.messages.current.as_ref().is_some_and(|c| c.message == message)
    }

    /// How many bytes of the current message the peer is known to have, by its reports. Bytes that
    /// are sent twice count when both copies are confirmed, or all of the message is.
    pub fn confirmed_bytes(&self) -> u64 {
        let Some(current) = &self.sending.messages.current else { return 0 };
        let unconfirmed = |channel: &SessionChannel| -> u64 {
            let tx = &channel.tx;
            let runs = tx.in_flight.iter().filter(|run| run.message == current.message);
            runs.map(|run| (run.range.end - run.range.start).min(run.end.saturating_sub(tx.confirmed))).sum()
        };
        let in_flight: u64 = self.channels.iter().map(unconfirmed).sum();
        current.total_bytes.saturating_sub(current.striping.unclaimed_bytes()).saturating_sub(in_flight)
    }

    /// Whether every claimed run is with the kernel, as far as channels that make progress are
    /// concerned.
    pub fn is_flushed(&self) -> bool {
        self.channels.iter().all(|c| !c.up || c.tx.stalled || c.tx.pending.is_none())
    }

    /// Whether some channel has something to write that does not need the caller's memory.
    pub fn is_transmit_due(&self) -> bool {
        self.sending.is_due(&self.channels)
    }

    /// Begins a round of [`Machine::claim`], [`Machine::transmit`] and [`Machine::handle_written`]
    /// on all channels.
    pub fn begin_round(&mut self, now: Time, paths: &dyn Paths) {
        self.sending.refresh_views(&mut self.channels, paths, now);
    }

    /// Ends a round, when no channel has or takes anything.
    pub fn end_round(&mut self) {
        self.sending.messages.hold_current();
    }

    /// Whether a channel has something pending.
    pub fn has_pending(&self, channel: Channel) -> bool {
        self.channels[channel].up && self.channels[channel].tx.pending.is_some()
    }

    /// Makes a channel that can take bytes, and has nothing pending, send the next run; whether
    /// there is one for it. The choice is final: the run will be sent.
    pub fn claim(&mut self, now: Time, channel: Channel) -> bool {
        self.sending.claim(&mut self.channels, channel, now)
    }

    /// What a channel should write next.
    pub fn transmit(&self, channel: Channel) -> Option<Transmit<'_>> {
        self.sending.transmit(&self.channels[channel])
    }

    /// A channel's socket has taken this many bytes of the last [`Transmit`].
    pub fn handle_written(&mut self, channel: Channel, bytes: usize) {
        self.channels[channel].tx.wrote(bytes);
    }

    /// While the current message is in a caller's memory and entirely claimed: sends again what
    /// channels are late with, if that is due. Returns when to call again; after that, a new round
    /// is needed.
    pub fn poll_rescue(&mut self, now: Time, paths: &dyn Paths) -> Option<Time> {
        self.sending.poll_rescue(&mut self.channels, paths, &mut self.actions, now)
    }
}

/// Receiving.
impl Machine {
    /// The length of the message that is due, if it is known and there is no room for it yet; see
    /// [`ReceiveStep::Begin`].
    pub fn due_to_begin(&self) -> Option<u64> {
        self.receiving.due_to_begin()
    }

    /// There is room for the message that is due.
    pub fn handle_begun(&mut self) {
        self.receiving.begin();
    }

    /// Whether the message that is due has begun, so that it cannot be received anew.
    pub fn is_begun(&self) -> bool {
        self.receiving.is_begun()
    }

    /// Whether the message that is due is complete.
    pub fn is_complete(&self) -> bool {
        self.receiving.is_complete()
    }

    /// A piece of the message that is due that arrived before its turn, if it has begun. It counts
    /// as received: the driver must put it in its place.
    pub fn take_early(&mut self) -> Option<Piece> {
        self.receiving.take_early()
    }

    /// A message that is complete while an earlier one is not, for users who do not need messages in
    /// their order. It counts as received.
    pub fn take_overtaking(&mut self) -> Option<Vec<u8>> {
        self.receiving.take_overtaking()
    }

    /// What to do next on a channel, to receive the message that is due.
    ///
    /// # Errors
    /// If the peer has broken the protocol; the session has failed then.
    pub fn poll_receive(&mut self, channel: Channel) -> Result<ReceiveStep<'_>, Failure> {
        let decision = self.receiving.advance(&mut self.channels[channel].rx);
        let decision = self.fail_on(decision)?;
        let rx = &mut self.channels[channel].rx;
        Ok(match decision {
            Decision::Begin { total_bytes } => ReceiveStep::Begin { total_bytes },
            Decision::Copy { offset, want } => ReceiveStep::Copy { offset, bytes: &rx.staged()[..want] },
            Decision::Read { direct } => ReceiveStep::Read { direct, staging: rx.staging_room() },
            Decision::Complete => ReceiveStep::Complete,
        })
    }

    /// The first `bytes` of the last [`ReceiveStep::Copy`] were copied.
    pub fn handle_copied(&mut self, channel: Channel, bytes: usize) {
        self.receiving.copied(&mut self.channels[channel].rx, bytes);
    }

    /// The last [`ReceiveStep::Read`] has brought `direct_bytes` and, behind them, `staged_bytes`
    /// in the staging buffer.
    pub fn handle_read(&mut self, now: Time, channel: Channel, direct_bytes: usize, staged_bytes: usize) {
        let rx = &mut self.channels[channel].rx;
        rx.observe((direct_bytes + staged_bytes) as u64, now);
        rx.stage(staged_bytes);
        self.receiving.read_direct(rx, direct_bytes);
    }

    /// A channel's socket is empty.
    ///
    /// `sleeps`: the receiver waits for the socket to become readable. Then this returns how many
    /// bytes that should take.
    pub fn handle_read_blocked(&mut self, channel: Channel, sleeps: bool) -> Option<u32> {
        let alone = self.channels.len() == 1;
        let rx = &mut self.channels[channel].rx;
        rx.set_empty();
        sleeps.then(|| rx.next_wake_up(alone, self.config.batch_reads))
    }

    /// Ends the message that is due, which is complete, and returns its length. If the sender
    /// waits for it, [`Machine::control_output`] has the confirmation.
    pub fn finish_message(&mut self, now: Time) -> u64 {
        let (total_bytes, confirm) = self.receiving.finish_message();
        // The peer waits for the last message before its close to be confirmed. With one report for
        // each message before that, the socket would fill, and the last report would stay behind.
        if confirm || self.closing.peer_closed_at == Some(self.receiving.next_message) {
            self.queue_report(now);
        } else {
            self.report_if_due(now);
        }
        total_bytes
    }

    /// Whether anything has arrived since the last report.
    pub fn has_unreported(&self) -> bool {
        self.receiving.reports.has_news()
    }

    /// Queues a report if enough has arrived since the last one, or enough time has passed.
    pub fn report_if_due(&mut self, now: Time) {
        if self.receiving.reports.is_due(self.receiving.is_begun(), now) {
            self.queue_report(now);
        }
    }

    /// Queues a report if anything has arrived since the last one.
    pub fn report_leftovers(&mut self, now: Time) {
        if self.receiving.reports.has_news() {
            self.queue_report(now);
        }
    }

    /// Queues a report in any case.
    pub fn report_now(&mut self, now: Time) {
        self.queue_report(now);
    }

    /// The receiver's end, if no message is left to wait for.
    pub fn receive_end(&self) -> Option<ReceiveEnd> {
        self.closing.receive_end(self.receiving.next_message)
    }

    /// Whether every channel has received the peer's first probe. A session of one channel has no
    /// probes.
    pub fn is_probed(&self) -> bool {
        let probed = |position: u64| position >= u64::from(PROBE_BYTES);
        self.channels.len() == 1 || self.channels.iter().all(|c| !c.up || probed(c.rx.position()))
    }

    /// Whether the receiver should spin for the message that is due, for at most
    /// [`SPIN`](super::SPIN), instead of sleeping. Asked once per message.
    pub fn should_spin(&mut self) -> bool {
        !self.is_transmit_due() && self.receiving.spin.spin(self.channels.len())
    }

    /// The first bytes of a message took `wait`, for [`Machine::should_spin`].
    pub fn handle_waited(&mut self, wait: Duration) {
        self.receiving.spin.learn(wait);
    }
}
