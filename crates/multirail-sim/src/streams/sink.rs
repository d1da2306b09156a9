//! What a host has received of the message that is due, and the messages that are complete.

use crate::session::{Arrival, Host, split_read};
use multirail_proto::session::{ReceiveStep, Time};
use multirail_proto::streams::Streams;

/// The message that is due.
#[derive(Default)]
pub(super) struct Sink {
    message: Vec<u8>,
}

impl Sink {
    /// Receives what a connection has brought. Messages go to `streams` as soon as they are complete,
    /// whether or not it is their turn.
    pub(super) fn receive(&mut self, host: &mut Host, streams: &mut Streams, arrival: &Arrival, now: Time) {
        let mut take = |message: &[u8]| streams.handle_message(message).expect("both hosts keep the protocol");
        let machine = &mut host.machine;
        let mut bytes = &arrival.bytes[..];
        loop {
            if let Some(total_bytes) = machine.due_to_begin() {
                self.message.resize(total_bytes as usize, 0);
                machine.handle_begun();
            }
            while let Some((offset, piece)) = machine.take_early() {
                self.place(offset, &piece);
            }
            if machine.is_complete() {
                machine.finish_message(now);
                take(&self.message);
            }
            match machine.poll_receive(arrival.channel).expect("the simulated peer is honest") {
                // The next turn of the loop does what they say.
                ReceiveStep::Begin { .. } | ReceiveStep::Complete => {}
                ReceiveStep::Copy { offset, bytes } => {
                    let count = bytes.len();
                    self.place(offset, bytes);
                    machine.handle_copied(arrival.channel, count);
                }
                ReceiveStep::Read { .. } if bytes.is_empty() => break,
                ReceiveStep::Read { direct, staging } => {
                    let (run, staged_bytes) = split_read(&mut bytes, direct, staging);
                    if let Some(direct) = direct {
                        self.place(direct.offset, run);
                    }
                    machine.handle_read(now, arrival.channel, run.len(), staged_bytes);
                }
            }
        }
        machine.handle_read_blocked(arrival.channel, true);
        while let Some(message) = machine.take_overtaking() {
            take(&message);
        }
        machine.report_if_due(now);
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) {
        let start = offset as usize;
        self.message[start..start + bytes.len()].copy_from_slice(bytes);
    }
}
