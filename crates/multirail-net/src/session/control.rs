//! I/O on the control connection.

use super::driver::SessionDriver;
use crate::error::Result;
use crate::socket;
use multirail_proto::session::Time;
use std::io::{IoSlice, IoSliceMut};
use std::task::{Context, Poll, Waker};

/// The most that is read from a control connection that is dead or about to be closed: one window's
/// worth of packets. The peer may still be sending.
const MAX_LAST_READS: usize = 1024;

impl SessionDriver {
    /// Sends what is queued for the peer's control side, and reads what it sent.
    pub(super) fn poll_control(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.machine.is_report_requested() {
            self.machine.queue_requested_report(self.now());
        }
        self.flush_control(cx);
        let done = self.read_control(cx);
        self.act();
        done
    }

    /// Writes pending control data until the socket is full.
    pub(super) fn flush_control(&mut self, cx: &mut Context<'_>) {
        loop {
            let output = self.machine.control_output();
            let Some(socket) = self.control.as_ref().filter(|_| !output.is_empty()) else { return };
            let length = output.len();
            match socket.poll_write(cx, &[IoSlice::new(output)]) {
                Poll::Ready(Ok(n)) => self.machine.handle_control_written(n),
                // Data that the peer sent earlier is still unread, and the end of the stream
                // follows it.
                Poll::Ready(Err(_)) => self.machine.handle_control_written(length),
                Poll::Pending => return,
            }
        }
    }

    fn read_control(&mut self, cx: &mut Context<'_>) -> Result<()> {
        while let Some(socket) = &self.control {
            match socket.poll_read(cx, &mut [IoSliceMut::new(&mut self.control_buffer[..])]) {
                Poll::Pending => break,
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.take_control_bytes(n)?;
                    self.flush_control(cx);
                }
                Poll::Ready(Ok(_)) => self.end_control(),
                Poll::Ready(Err(error)) if socket::is_reset(Some(&error)) => self.end_control(),
                Poll::Ready(Err(_)) => self.lose_control(),
            }
            if self.machine.failure().is_some() {
                break;
            }
        }
        Ok(())
    }

    fn take_control_bytes(&mut self, count: usize) -> Result<()> {
        let now: Time = self.now();
        Ok(self.machine.handle_control_bytes(now, &self.control_buffer[..count], &self.sockets)?)
    }

    pub(super) fn lose_control(&mut self) {
        self.control = None;
        self.machine.handle_control_lost(self.now());
    }

    /// The peer has closed the control connection, or reset it.
    pub(super) fn end_control(&mut self) {
        self.control = None;
        let now = self.now();
        self.machine.handle_control_ended(now);
    }

    /// Reads what a dead control connection still holds, without waiting for a readiness event.
    pub(super) fn drain_control(&mut self) {
        for _ in 0..MAX_LAST_READS {
            let Some(socket) = &self.control else { return };
            let Poll::Ready(Ok(n @ 1..)) = socket.read_now(&mut [IoSliceMut::new(&mut self.control_buffer[..])]) else {
                return;
            };
            if self.take_control_bytes(n).is_err() {
                return;
            }
        }
    }

    /// Ends the control connection so that the last packets still arrive. Closing a socket with
    /// unread bytes sends a reset and drops unsent data.
    pub(super) fn part_control(&mut self) {
        self.flush_control(&mut Context::from_waker(Waker::noop()));
        let Some(socket) = self.control.take() else { return };
        self.machine.handle_control_lost(self.now());
        for _ in 0..MAX_LAST_READS {
            let read = socket.read_now(&mut [IoSliceMut::new(&mut self.control_buffer[..])]);
            if !matches!(read, Poll::Ready(Ok(1..))) {
                break;
            }
        }
    }
}
