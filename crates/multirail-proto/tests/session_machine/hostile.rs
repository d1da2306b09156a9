//! A peer that sends anything: no panic, and no more memory than the limits allow.

use multirail_proto::session::{
    Failure, Machine, MachineConfig, PathInfo, Paths, Payload, ReceiveStep, Role, Time, WINDOW_BYTES,
};
use multirail_proto::striping::{Direction, Strategy as Striping};
use multirail_proto::wire::{
    ChannelReport, Control, Frame, MAX_HEAD_BYTES, MAX_MESSAGE_BYTES, MAX_PACKET_BYTES, Report, packet,
};
use multirail_testing::proptest_config;
use proptest::prelude::*;
use std::time::Duration;

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

/// What a hostile peer does, and what the application does meanwhile.
#[derive(Debug, Clone)]
enum Step {
    /// A header on a channel, and this many bytes of payload behind it.
    Frame(usize, Frame, usize),
    Bytes(usize, Vec<u8>),
    Control(Control),
    ControlBytes(Vec<u8>),
    Send(u16),
    Pass(u32),
    Lose(usize),
    Replace(u32),
}

/// Numbers near the limits, and any others.
fn message() -> impl Strategy<Value = u32> {
    prop_oneof![0..4u32, 4094..4099u32, any::<u32>(), Just(u32::MAX)]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..200u64, Just(1 << 16), Just(WINDOW_BYTES), 0..=MAX_MESSAGE_BYTES, any::<u64>()]
}

fn frame() -> impl Strategy<Value = Frame> {
    let small = || prop_oneof![0..200u32, any::<u32>()];
    prop_oneof![
        (message(), size(), small()).prop_map(|(message, offset, length)| Frame::Run { message, offset, length }),
        (any::<u16>(), small(), any::<bool>()).prop_map(|(message_low, length, confirm)| Frame::Whole {
            message_low,
            length,
            confirm
        }),
        (message(), size(), any::<bool>()).prop_map(|(message, total_bytes, confirm)| Frame::Open {
            message,
            total_bytes,
            confirm
        }),
        small().prop_map(|length| Frame::Pad { length }),
        (message(), any::<bool>(), small(), size(), size()).prop_map(
            |(message, up, fragment_bytes, offset, total_bytes)| {
                let direction = if up { Direction::Increment } else { Direction::Decrement };
                Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm: up }
            }
        ),
        Just(Frame::Continue),
        message().prop_map(|message| Frame::End { message }),
    ]
}

fn control() -> impl Strategy<Value = Control> {
    let row = (0..4u32, size(), any::<u64>(), any::<u64>())
        .prop_map(|(channel, position, busy_bytes, busy_us)| ChannelReport { channel, position, busy_bytes, busy_us });
    prop_oneof![
        (message(), any::<bool>(), prop::collection::vec(row, 0..8)).prop_map(
            |(completed_below, close_heard, channels)| {
                Control::Report(Report { completed_below, close_heard, channels })
            }
        ),
        message().prop_map(|messages| Control::Close { messages }),
        Just(Control::Ports(Vec::new())),
        ".{0,20}".prop_map(|reason| Control::Abort { reason }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let channel = || 0..3usize;
    prop_oneof![
        8 => (channel(), frame(), 0..5000usize).prop_map(|(c, frame, payload)| Step::Frame(c, frame, payload)),
        1 => (channel(), prop::collection::vec(any::<u8>(), 0..100)).prop_map(|(c, bytes)| Step::Bytes(c, bytes)),
        3 => control().prop_map(Step::Control),
        1 => prop::collection::vec(any::<u8>(), 0..100).prop_map(Step::ControlBytes),
        2 => any::<u16>().prop_map(Step::Send),
        1 => (0..1_000_000u32).prop_map(Step::Pass),
        1 => channel().prop_map(Step::Lose),
        1 => (0..6u32).prop_map(Step::Replace),
    ]
}

/// The victim: an application that receives messages of up to 100,000 bytes and refuses others.
struct Victim {
    machine: Machine,
    now: Time,
    next_id: u32,
}

impl Victim {
    fn new(role: Role, strategy: Striping) -> Self {
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
        let info = PathInfo::default();
        for id in 0..3 {
            machine.handle_channel_connected(Time::ZERO, id, id, &info);
        }
        Self { machine, now: Time::ZERO, next_id: 3 }
    }

    /// Feeds bytes to a channel as a driver does.
    fn feed(&mut self, channel: usize, mut bytes: &[u8]) -> Result<(), Failure> {
        let channel = channel.min(self.machine.channel_count().saturating_sub(1));
        if self.machine.channel_count() == 0 {
            return Ok(());
        }
        loop {
            match self.machine.poll_receive(channel)? {
                ReceiveStep::Begin { total_bytes } if total_bytes > 100_000 => return Ok(()),
                ReceiveStep::Begin { .. } => {
                    self.machine.handle_begun();
                    while self.machine.take_early().is_some() {}
                }
                ReceiveStep::Copy { offset, bytes } => {
                    assert!(offset + bytes.len() as u64 <= 100_000);
                    let count = bytes.len();
                    self.machine.handle_copied(channel, count);
                }
                ReceiveStep::Complete => {
                    assert!(self.machine.finish_message(self.now) <= 100_000);
                }
                ReceiveStep::Read { .. } if bytes.is_empty() => {
                    self.machine.handle_read_blocked(channel, true);
                    self.machine.report_if_due(self.now);
                    return Ok(());
                }
                ReceiveStep::Read { direct, staging } => {
                    let direct_bytes = direct.map_or(0, |run| {
                        assert!(run.offset + run.left <= 100_000, "{run:?}");
                        run.left.min(bytes.len() as u64) as usize
                    });
                    bytes = &bytes[direct_bytes..];
                    let behind =
                        if direct.is_none_or(|run| run.left == direct_bytes as u64) { staging.len() } else { 0 };
                    let count = behind.min(bytes.len());
                    staging[..count].copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    self.machine.handle_read(self.now, channel, direct_bytes, count);
                }
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Frame(channel, frame, payload) => {
                let mut head = [0; MAX_HEAD_BYTES];
                let length = frame.encode(&mut head);
                self.feed(*channel, &[&head[..length], &vec![7; *payload]].concat())
            }
            Step::Bytes(channel, bytes) => self.feed(*channel, bytes),
            Step::Control(control) => {
                let mut bytes = Vec::new();
                packet::encode(control, &mut bytes);
                self.machine.handle_control_bytes(self.now, &bytes, &Nothing)
            }
            Step::ControlBytes(bytes) => self.machine.handle_control_bytes(self.now, bytes, &Nothing),
            Step::Send(bytes) => {
                let length = u64::from(*bytes);
                if self.machine.can_begin(length) {
                    let copy = Some(vec![1; usize::from(*bytes)]);
                    self.machine.begin_message(self.now, length, copy, 1, &Nothing);
                }
                self.transmit();
                Ok(())
            }
            Step::Pass(time_us) => {
                self.now = self.now + Duration::from_micros(u64::from(*time_us));
                self.machine.handle_timeout(self.now, &Nothing);
                self.machine.check()
            }
            Step::Lose(channel) if *channel < self.machine.channel_count() => {
                self.machine.handle_channel_lost(self.now, *channel, &Nothing);
                Ok(())
            }
            Step::Lose(_) => Ok(()),
            Step::Replace(id) => {
                self.machine.handle_channel_replaced(self.now, *id, &Nothing);
                self.machine.handle_channel_connected(self.now, self.next_id, 0, &PathInfo::default());
                self.next_id += 1;
                Ok(())
            }
        }
    }

    fn transmit(&mut self) {
        self.machine.begin_round(self.now, &Nothing);
        for channel in 0..self.machine.channel_count() {
            if !self.machine.has_pending(channel) && !self.machine.claim(self.now, channel) {
                continue;
            }
            let transmit = self.machine.transmit(channel).expect("something is pending");
            let Payload::Bytes(payload) = transmit.payload else { panic!("every message is copied") };
            let count = transmit.head.len() + payload.len();
            self.machine.handle_written(channel, count);
        }
        self.machine.end_round();
    }
}

proptest! {
    #![proptest_config(proptest_config(200))]

    #[test]
    fn no_peer_makes_the_machine_panic(
        dials in any::<bool>(),
        strategy in prop::sample::select(Striping::ALL.to_vec()),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let role = if dials { Role::Dialler } else { Role::Listener };
        let mut victim = Victim::new(role, strategy);
        for step in &steps {
            let done = victim.step(step);
            while victim.machine.poll_action().is_some() {}
            // The control connection is never written, as if the peer did not read it.
            let queued = victim.machine.control_output().len();
            prop_assert!(queued <= 2 * MAX_PACKET_BYTES, "{queued} bytes wait");
            if let Err(failure) = done {
                prop_assert!(victim.machine.failure().is_some());
                prop_assert!(!matches!(failure, Failure::Cancelled(_)));
                break;
            }
            if victim.machine.failure().is_some() {
                prop_assert!(matches!(step, Step::Control(Control::Abort { .. })), "{step:?}");
                break;
            }
        }
    }
}

/// A report for every message, and none of them is read: the queue ends at its limit, and the next
/// connection starts with what matters.
#[test]
fn reports_that_are_not_read_do_not_pile_up() {
    let mut victim = Victim::new(Role::Listener, Striping::Adaptive);
    for message in 0..20_000u32 {
        let frame = Frame::Whole { message_low: message as u16, length: 0, confirm: true };
        victim.step(&Step::Frame(0, frame, 0)).expect("it is allowed");
    }
    let queued = victim.machine.control_output().len();
    assert!((MAX_PACKET_BYTES..MAX_PACKET_BYTES + 100).contains(&queued), "{queued}");
    victim.machine.handle_control_connected();
    victim.machine.queue_requested_report(victim.now);
    let mut output = victim.machine.control_output();
    let mut last = None;
    while let Some((packet, length)) = packet::decode::<Control>(output).expect("own packets") {
        output = &output[length..];
        last = Some(packet);
    }
    let Some(Control::Report(report)) = last else { panic!("{last:?}") };
    assert_eq!(report.completed_below, 20_000);
    assert_eq!(report.channels.len(), 3);
}
