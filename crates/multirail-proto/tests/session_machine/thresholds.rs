//! Times and limits of the machine, from just inside and just outside.

use multirail_proto::session::{
    Action, Event, Failure, Machine, MachineConfig, PROBE_BYTES, PathInfo, Paths, Payload, Role, Time,
};
use multirail_proto::striping::Strategy;
use std::time::Duration;

const NS: Duration = Duration::from_nanos(1);

/// Paths that acknowledge nothing from channel 0 and everything from others.
struct FirstIsSilent {
    rtt_us: u32,
    window_closed: bool,
}

impl Paths for FirstIsSilent {
    fn info(&self, channel: usize) -> PathInfo {
        let window_closed = self.window_closed && channel == 0;
        PathInfo { alive: true, window_closed, rtt_us: self.rtt_us, min_rtt_us: self.rtt_us, ..PathInfo::default() }
    }
    fn unacknowledged_bytes(&self, channel: usize) -> u64 {
        if channel == 0 { 1 << 20 } else { 0 }
    }
    fn unread_bytes(&self, _: usize) -> u64 {
        0
    }
    fn send_buffer_bytes(&self, _: usize) -> Option<u64> {
        None
    }
    fn losses_mean_congestion(&self, _: usize) -> bool {
        false
    }
}

fn machine(role: Role, give_up_after: Duration) -> Machine {
    let strategy = Strategy::EqualPartition;
    let config =
        MachineConfig { role, strategy, fragment_bytes: 2048, tune_channels: false, batch_reads: false, give_up_after };
    let mut machine = Machine::new(config, Time::ZERO);
    machine.handle_control_connected();
    machine
}

fn connect(machine: &mut Machine, channels: u32) {
    for id in 0..channels {
        machine.handle_channel_connected(Time::ZERO, id, id, &PathInfo::default());
    }
}

fn actions(machine: &mut Machine) -> Vec<Action> {
    std::iter::from_fn(|| machine.poll_action()).collect()
}

/// Writes all that the channels take; returns the payload and padding bytes of each.
fn write_all(machine: &mut Machine, now: Time, paths: &dyn Paths) -> Vec<usize> {
    machine.begin_round(now, paths);
    let mut written = vec![0; machine.channel_count()];
    for (channel, written) in written.iter_mut().enumerate() {
        while machine.has_pending(channel) || machine.claim(now, channel) {
            let transmit = machine.transmit(channel).expect("pending");
            let payload = match transmit.payload {
                Payload::Bytes(bytes) => bytes.len(),
                Payload::Caller { want, .. } => want,
            };
            *written += payload;
            let count = transmit.head.len() + payload;
            machine.handle_written(channel, count);
        }
    }
    machine.end_round();
    written
}

/// Whether channel 0 counts as stalled this long after it has begun to send.
fn stalls_after(time: Duration, channels: u32, paths: &FirstIsSilent) -> bool {
    let mut machine = machine(Role::Listener, Duration::from_secs(100));
    connect(&mut machine, channels);
    machine.begin_message(Time::ZERO, 10_000, Some(vec![0; 10_000]), 1, paths);
    write_all(&mut machine, Time::ZERO, paths);
    machine.handle_timeout(Time::after(time), paths);
    let stalled = actions(&mut machine).contains(&Action::Log(Event::Stalled { id: 0 }));
    let again = write_all(&mut machine, Time::after(time), paths);
    assert_eq!(stalled, again.get(1).is_some_and(|bytes| *bytes > 0), "others send its bytes: {again:?}");
    stalled
}

#[test]
fn a_channel_stalls_after_300_ms_or_four_round_trips() {
    let near = FirstIsSilent { rtt_us: 1000, window_closed: false };
    let limit = Duration::from_millis(300);
    assert!(!stalls_after(limit - NS, 2, &near));
    assert!(stalls_after(limit, 2, &near));
    let far = FirstIsSilent { rtt_us: 100_000, window_closed: false };
    let limit = Duration::from_millis(400);
    assert!(!stalls_after(limit - NS, 2, &far));
    assert!(stalls_after(limit, 2, &far));
}

#[test]
fn a_channel_does_not_stall_alone_or_while_its_window_is_closed() {
    let long = Duration::from_secs(5);
    assert!(!stalls_after(long, 1, &FirstIsSilent { rtt_us: 1000, window_closed: false }));
    assert!(!stalls_after(long, 2, &FirstIsSilent { rtt_us: 1000, window_closed: true }));
}

#[test]
fn a_session_outlives_its_last_channel_for_as_long_as_configured() {
    let after = Duration::from_millis(700);
    let paths = FirstIsSilent { rtt_us: 0, window_closed: false };
    for (time, ends) in [(after, false), (after + NS, true)] {
        let mut machine = machine(Role::Listener, after);
        connect(&mut machine, 1);
        machine.handle_channel_lost(Time::after(after), 0, &paths);
        machine.handle_timeout(Time::after(after) + time, &paths);
        assert_eq!(machine.failure(), ends.then_some(&Failure::AllRailsLost(after)));
        assert_eq!(actions(&mut machine).contains(&Action::End), ends);
    }
}

#[test]
fn channels_of_a_session_are_probed_first_and_unused_ones_every_two_seconds() {
    let paths = FirstIsSilent { rtt_us: 0, window_closed: false };
    let mut machine = machine(Role::Listener, Duration::from_secs(100));
    connect(&mut machine, 1);
    assert_eq!(write_all(&mut machine, Time::ZERO, &paths), [0], "one channel is not probed");
    machine.handle_channel_connected(Time::ZERO, 1, 1, &PathInfo::default());
    let probe = PROBE_BYTES as usize;
    assert_eq!(write_all(&mut machine, Time::ZERO, &paths), [probe, probe]);
    // An empty message has no payload, so that no channel counts as used.
    let two_seconds = Duration::from_secs(2);
    machine.handle_timeout(Time::after(two_seconds - NS), &paths);
    assert_eq!(write_all(&mut machine, Time::after(two_seconds), &paths), [0, 0]);
    machine.set_strategy(Strategy::Single, 1, &paths);
    machine.begin_message(Time::after(two_seconds), 100, Some(vec![0; 100]), 1, &paths);
    let sent = write_all(&mut machine, Time::after(two_seconds), &paths);
    let unused = sent.iter().position(|bytes| *bytes == 0).expect("one carries nothing");
    machine.handle_timeout(Time::after(2 * two_seconds), &paths);
    let probed = write_all(&mut machine, Time::after(2 * two_seconds), &paths);
    assert_eq!(probed[unused], probe);
    assert_eq!(probed[1 - unused], 0);
}

#[test]
fn a_lost_channel_is_dialled_at_the_next_maintenance() {
    let paths = FirstIsSilent { rtt_us: 0, window_closed: false };
    let mut machine = machine(Role::Dialler, Duration::from_secs(100));
    let id = machine.new_channel_id();
    machine.handle_channel_connected(Time::ZERO, id, 3, &PathInfo::default());
    assert_eq!(machine.poll_timeout(), Time::after(Duration::from_millis(100)));
    let is_redial = |a: &Action| matches!(a, Action::Redial(r) if r.rail == 3 && r.replaces == id && r.id != id);
    machine.handle_channel_lost(Time::ZERO, 0, &paths);
    assert!(!actions(&mut machine).iter().any(is_redial));
    machine.handle_timeout(Time::ZERO, &paths);
    assert!(actions(&mut machine).iter().any(is_redial));
    machine.handle_redial_failed(Time::ZERO, id, false);
    machine.handle_timeout(Time::after(Duration::from_millis(100)), &paths);
    assert!(actions(&mut machine).iter().any(is_redial));
}

/// Whether a session without channels has failed this long after its peer's host has begun to refuse them.
fn fails_when_refused(time: Duration, answers: &[(Duration, bool)]) -> bool {
    let paths = FirstIsSilent { rtt_us: 0, window_closed: false };
    let mut machine = machine(Role::Dialler, Duration::from_secs(100));
    let id = machine.new_channel_id();
    machine.handle_channel_connected(Time::ZERO, id, 0, &PathInfo::default());
    machine.handle_channel_lost(Time::ZERO, 0, &paths);
    for (at, refused) in answers {
        machine.handle_redial_failed(Time::after(*at), id, *refused);
    }
    machine.handle_timeout(Time::after(time), &paths);
    machine.failure().is_some()
}

#[test]
fn a_host_that_refuses_for_a_while_has_no_server() {
    let second = Duration::from_secs(1);
    let refused = [(Duration::ZERO, true), (second, true)];
    assert!(!fails_when_refused(3 * second - NS, &refused));
    assert!(fails_when_refused(3 * second, &refused));
    let silent_between = [(Duration::ZERO, true), (second, false), (2 * second, true)];
    assert!(!fails_when_refused(5 * second - NS, &silent_between));
    assert!(fails_when_refused(5 * second, &silent_between));
    assert!(!fails_when_refused(50 * second, &[(second, false)]), "a network is down");
}

/// A request may name any fragment, so the limits that follow from it must not overflow.
#[test]
fn the_longest_fragment_is_possible() {
    let config = MachineConfig {
        role: Role::Listener,
        strategy: Strategy::TwoEnded,
        fragment_bytes: u32::MAX,
        tune_channels: false,
        batch_reads: false,
        give_up_after: Duration::from_secs(1),
    };
    let mut machine = Machine::new(config, Time::ZERO);
    connect(&mut machine, 2);
    let limits: Vec<Action> = [0, 1].map(|channel| Action::LimitUnsent { channel, bytes: u32::MAX }).into();
    assert_eq!(actions(&mut machine), limits);
}
