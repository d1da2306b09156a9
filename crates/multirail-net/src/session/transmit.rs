//! Writing on all channels.

use super::driver::SessionDriver;
use crate::error::Result;
use crate::payload::Source;
use crate::rate_limit::Direction;
use multirail_proto::session::{Payload, Time, Transmit};
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

impl SessionDriver {
    /// Begins a message and returns its serial number. `copy` contains its bytes; without it, every
    /// call of [`SessionDriver::poll_sent`] supplies them.
    pub(super) fn begin_message(&mut self, total_bytes: u64, copy: Option<Vec<u8>>, grain_bytes: u64) -> u32 {
        self.machine.begin_message(self.now(), total_bytes, copy, grain_bytes, &self.sockets)
    }

    /// Continues `message`; ready when a copied message is claimed, or any other is confirmed.
    pub(super) fn poll_sent(
        &mut self,
        cx: &mut Context<'_>,
        message: u32,
        source: &mut dyn Source,
    ) -> Poll<Result<()>> {
        self.poll_transmit(cx, Some(source));
        self.check()?;
        if self.machine.is_current(message) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Checks what is late and must be sent again; returns when to call again, if ever.
    pub(super) fn poll_rescue(&mut self) -> Option<Time> {
        // A channel that waits for the limit of the rate is not late.
        if self.throttle.is_waiting() {
            return None;
        }
        let next = self.machine.poll_rescue(self.now(), &self.sockets);
        self.act();
        next
    }

    /// Writes on every channel that has room, until none has.
    pub(super) fn poll_transmit(&mut self, cx: &mut Context<'_>, mut source: Option<&mut dyn Source>) {
        self.machine.begin_round(self.now(), &self.sockets);
        loop {
            let mut progress = false;
            for channel in 0..self.sockets.len() {
                match self.transmit_on(channel, cx, &mut source) {
                    Ok(wrote) => progress |= wrote,
                    Err(error) => {
                        self.channel_lost(channel, &error);
                        progress = true;
                    }
                }
            }
            if !progress {
                self.machine.end_round();
                return;
            }
        }
    }

    /// Writes a channel's pending data, or data that it claims now; returns whether anything was
    /// written.
    fn transmit_on(
        &mut self,
        channel: usize,
        cx: &mut Context<'_>,
        source: &mut Option<&mut dyn Source>,
    ) -> io::Result<bool> {
        let Some(socket) = self.sockets.get(channel) else { return Ok(false) };
        let Poll::Ready(mut step_bytes) = self.throttle.poll_ready(cx, Direction::Send) else { return Ok(false) };
        if !self.machine.has_pending(channel)
            && (socket.poll_writable(cx).is_pending() || !self.machine.claim(self.now(), channel))
        {
            return Ok(false);
        }
        let mut wrote = false;
        while let Some(Transmit { head, payload }) = self.machine.transmit(channel) {
            let payload = match (payload, &mut *source) {
                (Payload::Bytes(bytes), _) => bytes,
                (Payload::Caller { offset, want }, Some(source)) => source.bytes(channel, offset, want),
                // What was sealed needs no source.
                (Payload::Caller { .. }, None) if socket.has_sealed() => &[],
                (Payload::Caller { .. }, None) => break,
            };
            // What was sealed must be offered again whole.
            let most_bytes = if socket.has_sealed() { payload.len() } else { step_bytes as usize };
            let payload = &payload[..payload.len().min(most_bytes)];
            match socket.poll_write(cx, &[IoSlice::new(head), IoSlice::new(payload)]) {
                Poll::Ready(Ok(n)) => {
                    self.machine.handle_written(channel, n);
                    self.throttle.count(n, Direction::Send);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
            wrote = true;
            match self.throttle.poll_ready(cx, Direction::Send) {
                Poll::Ready(bytes) => step_bytes = bytes,
                Poll::Pending => break,
            }
        }
        Ok(wrote)
    }
}
