//! One host of the simulation: its machine, and how bytes get into and out of that.

use super::connection::{Connection, Kernel};
use super::outcome::Outcome;
use multirail_proto::ledger::Ledger;
use multirail_proto::session::{Machine, MachineConfig, Paths, Payload, ReceiveStep, Role, Time};
use multirail_proto::striping::{Channel, Strategy};
use multirail_proto::wire::Frame;
use std::time::Duration;

/// A simulated session never gives up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(1 << 30);

pub(super) struct Host {
    pub(super) machine: Machine,
    /// Connections by the machine's index of the channel.
    pub(super) table: Vec<Option<usize>>,
    sends: bool,
}

impl Host {
    pub(super) fn new(role: Role, strategy: Strategy, fragment_bytes: u32) -> Self {
        let give_up_after = GIVE_UP_AFTER;
        let config = MachineConfig { role, strategy, fragment_bytes, tune_channels: false, give_up_after };
        let mut machine = Machine::new(config, Time::ZERO);
        machine.handle_control_connected();
        Self { machine, table: Vec::new(), sends: role == Role::Dialler }
    }

    /// Calls a method of the machine with what this host's kernel knows.
    pub(super) fn call<T>(&mut self, connections: &[Connection], f: impl FnOnce(&mut Machine, &dyn Paths) -> T) -> T {
        f(&mut self.machine, &Kernel { connections, table: &self.table, sends: self.sends })
    }

    /// The machine's index of a connection, while it is open here.
    pub(super) fn channel(&self, connection: usize) -> Option<Channel> {
        self.table.iter().position(|c| *c == Some(connection))
    }

    /// Writes at most `room` bytes of what a channel has pending or claims now; returns them.
    pub(super) fn write(
        &mut self,
        channel: Channel,
        room: usize,
        message: &[u8],
        outcome: &mut Outcome,
        now: Time,
    ) -> Option<Vec<u8>> {
        let pending = self.machine.has_pending(channel);
        if room == 0 || !pending && !self.machine.claim(now, channel) {
            return None;
        }
        let transmit = self.machine.transmit(channel)?;
        if !pending {
            count_frames(transmit.head, outcome);
        }
        let payload = match transmit.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Caller { offset, want } => &message[offset as usize..offset as usize + want],
        };
        let mut bytes = transmit.head[..room.min(transmit.head.len())].to_vec();
        bytes.extend_from_slice(&payload[..payload.len().min(room - bytes.len())]);
        self.machine.handle_written(channel, bytes.len());
        Some(bytes)
    }
}

/// Counts the headers before a run.
fn count_frames(mut head: &[u8], outcome: &mut Outcome) {
    while let Ok(Some((frame, length))) = Frame::decode(head) {
        match frame {
            Frame::Run { .. } | Frame::Whole { .. } => outcome.headers += 1,
            Frame::Start { .. } => outcome.starts += 1,
            Frame::Continue => outcome.continues += 1,
            Frame::Open { .. } | Frame::Pad { .. } | Frame::End { .. } => {}
        }
        head = &head[length..];
    }
}

/// The application that receives the message, and checks every byte.
pub(super) struct Application {
    pub(super) message: Vec<u8>,
    pub(super) placed: Ledger,
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
        Self { message, placed: Ledger::default(), complete: false }
    }

    /// Receives what a connection has brought.
    pub(super) fn receive(
        &mut self,
        host: &mut Host,
        connection: &mut Connection,
        channel: Channel,
        mut bytes: &[u8],
        now: Time,
    ) {
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
                    let direct_bytes = direct.map_or(0, |run| run.left.min(bytes.len() as u64) as usize);
                    let (run, rest) = bytes.split_at(direct_bytes);
                    let ends = direct.is_none_or(|direct| direct.left == direct_bytes as u64);
                    let staged_bytes = if ends { rest.len().min(staging.len()) } else { 0 };
                    staging[..staged_bytes].copy_from_slice(&rest[..staged_bytes]);
                    bytes = &rest[staged_bytes..];
                    if let Some(direct) = direct {
                        self.place(connection, direct.offset, run);
                    }
                    machine.handle_read(now, channel, direct_bytes, staged_bytes);
                }
            }
        }
    }

    fn place(&mut self, connection: &mut Connection, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(self.message[offset as usize..end as usize] == *bytes, "wrong bytes at {offset}");
        connection.delivered_bytes += bytes.len() as u64;
        self.placed.insert(offset..end);
    }
}
