//! Reading from all channels.

use super::driver::SessionDriver;
use crate::error::{Error, Result};
use crate::payload::Sink;
use crate::rate_limit::Direction;
use multirail_proto::session::{Failure, ReceiveEnd, ReceiveStep};
use std::io::IoSliceMut;
use std::task::{Context, Poll};

/// Limit of reads from one channel before the others get their turn.
const READS_PER_TURN: usize = 16;
/// The most that is read into a sink at once.
const MAX_READ_BYTES: u64 = 1 << 30;

/// Refuses every message, which leaves it pending.
struct NoSink;

impl Sink for NoSink {
    fn begin(&mut self, message_bytes: u64) -> Result<()> {
        Err(Error::MessageTooLarge { message_bytes, buffer_bytes: 0 })
    }
    fn space(&mut self, _: usize, _: u64, _: usize) -> &mut [u8] {
        &mut []
    }
    fn filled(&mut self, _: usize, _: u64, _: usize) {}
}

/// Fails if a sink gives no room for bytes at `offset`; reading could never end.
fn check_room(room_bytes: usize, offset: u64) -> Result<()> {
    if room_bytes == 0 {
        return Err(Error::Local(std::io::Error::other(format!("the sink has no room for bytes at offset {offset}"))));
    }
    Ok(())
}

/// How a channel's turn ended.
enum Turn {
    /// The message being received is complete.
    Complete,
    /// The socket is empty.
    Blocked,
    /// There may be more to read.
    Yield,
}

impl SessionDriver {
    /// Continues to receive the next message; ready with its length when it is complete. With
    /// `spinning`, it polls the sockets directly, not through the runtime.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn Sink,
        spinning: bool,
    ) -> Poll<Result<u64>> {
        self.check()?;
        self.place_early(sink)?;
        let mut again = false;
        for channel in 0..self.sockets.len() {
            match self.read_channel(channel, cx, sink, spinning)? {
                Turn::Complete => return Poll::Ready(Ok(self.finish_message(cx))),
                Turn::Blocked => {}
                Turn::Yield => again = true,
            }
        }
        if self.machine.is_complete() {
            return Poll::Ready(Ok(self.finish_message(cx)));
        }
        self.report_if_due(cx);
        match self.machine.receive_end() {
            Some(ReceiveEnd::Closed) => return Poll::Ready(Err(Error::Closed)),
            Some(ReceiveEnd::PeerGone) => return Poll::Ready(Err(Failure::peer_gone().into())),
            None => {}
        }
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Reads what precedes the first message: the peer's probes. Returns whether all channels have
    /// sent theirs.
    pub(super) fn poll_probes(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        for channel in 0..self.sockets.len() {
            match self.read_channel(channel, cx, &mut NoSink, false) {
                Ok(_) | Err(Error::MessageTooLarge { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.report_if_due(cx);
        Ok(self.machine.is_probed())
    }

    fn finish_message(&mut self, cx: &mut Context<'_>) -> u64 {
        let total_bytes = self.machine.finish_message(self.now());
        self.flush_control(cx);
        total_bytes
    }

    fn report_if_due(&mut self, cx: &mut Context<'_>) {
        if self.machine.has_unreported() {
            self.machine.report_if_due(self.now());
            self.flush_control(cx);
        }
    }

    /// Takes the parts of this message that arrived while an earlier one was being received.
    fn place_early(&mut self, sink: &mut dyn Sink) -> Result<()> {
        if let Some(total_bytes) = self.machine.due_to_begin() {
            sink.begin(total_bytes)?;
            self.machine.handle_begun();
        }
        while let Some((mut offset, piece)) = self.machine.take_early() {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                // This uses the sink's room for channel 0, since no channel is being read here.
                let room = sink.space(0, offset, rest.len());
                let n = room.len();
                check_room(n, offset)?;
                room.copy_from_slice(&rest[..n]);
                sink.filled(0, offset, n);
                offset += n as u64;
                rest = &rest[n..];
            }
        }
        Ok(())
    }

    /// Reads one channel until its socket is empty, the message is complete, or its turn is over.
    fn read_channel(
        &mut self,
        channel: usize,
        cx: &mut Context<'_>,
        sink: &mut dyn Sink,
        spinning: bool,
    ) -> Result<Turn> {
        let mut reads = 0;
        loop {
            let step = match self.machine.poll_receive(channel) {
                Ok(step) => step,
                Err(failure) => {
                    self.act();
                    return Err(failure.into());
                }
            };
            let (direct, staging) = match step {
                ReceiveStep::Begin { total_bytes } => {
                    sink.begin(total_bytes)?;
                    self.machine.handle_begun();
                    continue;
                }
                ReceiveStep::Copy { offset, bytes } => {
                    let room = sink.space(channel, offset, bytes.len());
                    let n = room.len();
                    check_room(n, offset)?;
                    room.copy_from_slice(&bytes[..n]);
                    sink.filled(channel, offset, n);
                    self.machine.handle_copied(channel, n);
                    continue;
                }
                ReceiveStep::Complete => return Ok(Turn::Complete),
                ReceiveStep::Read { direct, staging } => (direct, staging),
            };
            if reads == READS_PER_TURN {
                return Ok(Turn::Yield);
            }
            reads += 1;
            let Poll::Ready(step_bytes) = self.throttle.poll_ready(cx, Direction::Receive) else {
                return Ok(Turn::Blocked);
            };
            let Some(socket) = self.sockets.get(channel) else { return Ok(Turn::Blocked) };
            let mut read = |parts: &mut [IoSliceMut<'_>]| {
                if spinning { socket.read_now(parts) } else { socket.poll_read(cx, parts) }
            };
            let (read, room_bytes) = match direct {
                Some(run) => {
                    let room = sink.space(channel, run.offset, run.left.min(MAX_READ_BYTES).min(step_bytes) as usize);
                    let room_bytes = room.len();
                    check_room(room_bytes, run.offset)?;
                    // The next header follows the run's end: the same system call takes both.
                    let behind = if room_bytes as u64 == run.left { staging.len() } else { 0 };
                    (read(&mut [IoSliceMut::new(room), IoSliceMut::new(&mut staging[..behind])]), room_bytes)
                }
                None => (read(&mut [IoSliceMut::new(staging)]), 0),
            };
            match read {
                Poll::Ready(Ok(n)) if n > 0 => {
                    let direct_bytes = n.min(room_bytes);
                    if let Some(run) = direct {
                        sink.filled(channel, run.offset, direct_bytes);
                    }
                    self.machine.handle_read(self.now(), channel, direct_bytes, n - direct_bytes);
                    self.throttle.count(n, Direction::Receive);
                }
                Poll::Ready(Ok(_)) => {
                    self.channel_lost(channel, &"the peer closed it");
                    return Ok(Turn::Blocked);
                }
                Poll::Ready(Err(error)) => {
                    self.channel_lost(channel, &error);
                    return Ok(Turn::Blocked);
                }
                Poll::Pending => {
                    if let Some(bytes) = self.machine.handle_read_blocked(channel, !spinning)
                        && let Some(socket) = self.sockets.get(channel)
                    {
                        // If this fails, the receiver only wakes up more often.
                        let _ = socket.set_wake_up(bytes);
                    }
                    return Ok(Turn::Blocked);
                }
            }
        }
    }
}
