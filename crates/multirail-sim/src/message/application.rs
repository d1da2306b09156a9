//! The application that receives the message, and checks every byte.

use crate::session::{Arrival, Host, split_read};
use multirail_proto::ledger::Ledger;
use multirail_proto::session::{ReceiveStep, Time};

pub(super) struct Application {
    pub(super) message: Vec<u8>,
    pub(super) placed: Ledger,
    /// Bytes of the message that each connection has brought, second copies included.
    pub(super) delivered_bytes: Vec<u64>,
    pub(super) complete: bool,
}

impl Application {
    pub(super) fn new(message_bytes: u64) -> Self {
        // A prime length, so that no two fragments of a message are alike by chance.
        const PERIOD_BYTES: usize = 65_521;
        let period: Vec<u8> = (0..PERIOD_BYTES).map(|i| ((i ^ i >> 8) as u8).wrapping_mul(31)).collect();
        let mut message = Vec::with_capacity(message_bytes as usize);
        while message.len() < message_bytes as usize {
            message.extend_from_slice(&period[..PERIOD_BYTES.min(message_bytes as usize - message.len())]);
        }
        Self { message, placed: Ledger::default(), delivered_bytes: Vec::new(), complete: false }
    }

    /// Receives what a connection has brought.
    pub(super) fn receive(&mut self, host: &mut Host, arrival: &Arrival, now: Time) {
        let Arrival { connection, channel, .. } = *arrival;
        let mut bytes = &arrival.bytes[..];
        let machine = &mut host.machine;
        while !self.complete {
            match machine.poll_receive(channel).expect("the simulated peer is honest") {
                ReceiveStep::Begin { total_bytes } => {
                    assert_eq!(total_bytes, self.message.len() as u64);
                    machine.handle_begun();
                }
                ReceiveStep::Copy { offset, bytes } => {
                    let count = bytes.len();
                    self.place(connection, offset, bytes);
                    machine.handle_copied(channel, count);
                }
                ReceiveStep::Complete => {
                    assert_eq!(machine.finish_message(now), self.placed.bytes());
                    self.complete = true;
                }
                ReceiveStep::Read { .. } if bytes.is_empty() => {
                    machine.handle_read_blocked(channel, true);
                    machine.report_if_due(now);
                    return;
                }
                ReceiveStep::Read { direct, staging } => {
                    let (run, staged) = split_read(&mut bytes, direct, staging);
                    if let Some(direct) = direct {
                        self.place(connection, direct.offset, run);
                    }
                    machine.handle_read(now, channel, run.len(), staged);
                }
            }
        }
    }

    fn place(&mut self, connection: usize, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(self.message[offset as usize..end as usize] == *bytes, "wrong bytes at {offset}");
        if self.delivered_bytes.len() <= connection {
            self.delivered_bytes.resize(connection + 1, 0);
        }
        self.delivered_bytes[connection] += bytes.len() as u64;
        self.placed.insert(offset..end);
    }
}
