//! A session's machine beside a peer that sends anything at any time.

use multirail_proto::session::{
    Machine, MachineConfig, PathInfo, Paths, Payload, ReceiveStep, Role, Time, WINDOW_BYTES,
};
use multirail_proto::striping::Strategy;
use multirail_proto::wire::MAX_PACKET_BYTES;
use std::time::Duration;

/// The longest message that the application takes.
const MAX_BYTES: u64 = 100_000;
/// Steps that one byte of input may cause, and those that an input may cause anyway. A machine that
/// asks for more makes its driver spin.
const STEPS_A_BYTE: usize = 8;
const STEPS: usize = 10_000;

/// A path of which nothing is known.
struct Nothing;

impl Paths for Nothing {
    fn info(&self, _: usize) -> PathInfo {
        PathInfo { alive: true, ..PathInfo::default() }
    }
    fn unacknowledged_bytes(&self, _: usize) -> u64 {
        u64::MAX
    }
    fn unread_bytes(&self, _: usize) -> u64 {
        u64::MAX
    }
    fn send_buffer_bytes(&self, _: usize) -> Option<u64> {
        Some(0)
    }
    fn losses_mean_congestion(&self, _: usize) -> bool {
        true
    }
}

/// An application that receives messages of up to [`MAX_BYTES`] and sends some, with its machine.
struct Side {
    machine: Machine,
    now: Time,
    next_id: u32,
    /// How many more steps the machine may ask for.
    steps_left: usize,
    /// What the machine has made the application keep of the message that is due.
    placed: u64,
}

/// The first byte of the input selects the role and the strategy. Then come operations: a byte for
/// the kind, a byte for its argument, a byte for a length, and that many bytes for the machine.
///
/// No operation makes the machine panic, ask for steps for ever, keep more than its limits allow, or
/// point outside of a message.
pub fn session(bytes: &[u8]) {
    let Some((&kind, mut rest)) = bytes.split_first() else { return };
    let mut side = Side::new(kind, bytes.len());
    while let [kind, argument, length, behind @ ..] = rest {
        let (input, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        let goes_on = side.step(*kind, *argument, input);
        while side.machine.poll_action().is_some() {}
        let queued = side.machine.control_output().len();
        assert!(queued <= 2 * MAX_PACKET_BYTES, "{queued} bytes wait for a peer that does not read");
        assert!(goes_on || side.machine.failure().is_some(), "the machine refused input and did not fail");
        if side.machine.failure().is_some() {
            return;
        }
    }
}

impl Side {
    fn new(kind: u8, input_bytes: usize) -> Self {
        let role = if kind & 1 == 0 { Role::Listener } else { Role::Dialler };
        let strategy = Strategy::ALL[usize::from(kind >> 1) % Strategy::ALL.len()];
        let give_up_after = Duration::from_secs(10);
        let config = MachineConfig {
            role,
            strategy,
            fragment_bytes: 100,
            tune_channels: true,
            batch_reads: false,
            give_up_after,
        };
        let mut machine = Machine::new(config, Time::ZERO);
        machine.handle_control_connected();
        for id in 0..2 {
            machine.handle_channel_connected(Time::ZERO, id, id, &PathInfo::default());
        }
        let steps_left = STEPS + STEPS_A_BYTE * input_bytes;
        Self { machine, now: Time::ZERO, next_id: 2, steps_left, placed: 0 }
    }

    /// Returns whether the machine has taken it.
    fn step(&mut self, kind: u8, argument: u8, input: &[u8]) -> bool {
        let channel = usize::from(argument) % self.machine.channel_count().max(1);
        let has_channel = self.machine.channel_count() > 0;
        match kind % 8 {
            0 | 1 if has_channel => return self.feed(channel, input),
            2 => return self.machine.handle_control_bytes(self.now, input, &Nothing).is_ok(),
            3 => self.send(u64::from(argument) << (input.len() % 8)),
            4 => {
                self.now = self.now + Duration::from_millis(u64::from(argument) << (input.len() % 8));
                self.machine.handle_timeout(self.now, &Nothing);
            }
            5 if has_channel => self.machine.handle_channel_lost(self.now, channel, &Nothing),
            6 => {
                self.machine.handle_channel_replaced(self.now, argument.into(), &Nothing);
                while self.machine.poll_action().is_some() {}
                self.machine.handle_channel_connected(self.now, self.next_id, 0, &PathInfo::default());
                self.next_id += 1;
            }
            7 => match argument % 3 {
                0 => self.machine.handle_control_connected(),
                1 => self.machine.handle_control_ended(self.now),
                _ => self.machine.close(),
            },
            _ => {}
        }
        true
    }

    /// Feeds bytes to a channel as a driver does.
    fn feed(&mut self, channel: usize, mut bytes: &[u8]) -> bool {
        loop {
            assert!(self.steps_left > 0, "the machine asks for ever more steps");
            self.steps_left -= 1;
            let Ok(step) = self.machine.poll_receive(channel) else { return false };
            match step {
                ReceiveStep::Begin { total_bytes } if total_bytes > MAX_BYTES => return true,
                ReceiveStep::Begin { .. } => {
                    self.machine.handle_begun();
                    while let Some((offset, piece)) = self.machine.take_early() {
                        assert!(offset + piece.len() as u64 <= MAX_BYTES);
                        self.placed += piece.len() as u64;
                        assert!(self.placed <= 2 * WINDOW_BYTES, "more was kept than the limit allows");
                    }
                }
                ReceiveStep::Copy { offset, bytes } => {
                    assert!(!bytes.is_empty() && offset + bytes.len() as u64 <= MAX_BYTES);
                    let count = bytes.len();
                    self.machine.handle_copied(channel, count);
                }
                ReceiveStep::Complete => {
                    assert!(self.machine.finish_message(self.now) <= MAX_BYTES);
                    self.placed = 0;
                }
                ReceiveStep::Read { .. } if bytes.is_empty() => {
                    self.machine.handle_read_blocked(channel, true);
                    self.machine.report_if_due(self.now);
                    return true;
                }
                ReceiveStep::Read { direct, staging } => {
                    let direct_bytes = direct.map_or(0, |run| {
                        assert!(run.left > 0 && run.offset + run.left <= MAX_BYTES, "{run:?}");
                        run.left.min(bytes.len() as u64) as usize
                    });
                    bytes = &bytes[direct_bytes..];
                    let room = if direct.is_none_or(|run| run.left == direct_bytes as u64) { staging.len() } else { 0 };
                    assert!(direct.is_some() || room > 0, "a read without room");
                    let count = room.min(bytes.len());
                    staging[..count].copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    self.machine.handle_read(self.now, channel, direct_bytes, count);
                }
            }
        }
    }

    /// Sends a message as far as the peer's confirmations allow, and one run on each channel.
    fn send(&mut self, length: u64) {
        if self.machine.can_begin(length) {
            let copy = Some(vec![1; length as usize]);
            self.machine.begin_message(self.now, length, copy, 1, &Nothing);
        }
        self.machine.begin_round(self.now, &Nothing);
        for channel in 0..self.machine.channel_count() {
            if !self.machine.has_pending(channel) && !self.machine.claim(self.now, channel) {
                continue;
            }
            let Some(transmit) = self.machine.transmit(channel) else { continue };
            let Payload::Bytes(payload) = transmit.payload else { panic!("every message is copied") };
            let count = transmit.head.len() + payload.len();
            self.machine.handle_written(channel, count);
        }
        self.machine.end_round();
    }
}
