//! How a session ends when the last packets are lost: a side stays until the other one knows.

use multirail_proto::session::{Failure, Machine, MachineConfig, PathInfo, Paths, Role, Time};
use multirail_proto::striping::Strategy;
use multirail_proto::wire::{Control, Report, packet};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Channels that are all in this state, with bytes that were not read.
struct All(PathInfo);

impl Paths for All {
    fn info(&self, _: usize) -> PathInfo {
        self.0
    }
    fn unacknowledged_bytes(&self, _: usize) -> u64 {
        0
    }
    fn unread_bytes(&self, _: usize) -> u64 {
        1000
    }
    fn send_buffer_bytes(&self, _: usize) -> Option<u64> {
        None
    }
    fn losses_mean_congestion(&self, _: usize) -> bool {
        false
    }
}

/// The peer has sent the end of each stream.
fn ended() -> All {
    All(PathInfo { alive: true, ended: true, ..PathInfo::default() })
}

/// The peer does not answer.
fn silent() -> All {
    All(PathInfo { alive: true, unanswered: true, ..PathInfo::default() })
}

fn at(time: Duration) -> Time {
    Time::after(time)
}

fn machine(role: Role) -> Machine {
    let config = MachineConfig {
        role,
        strategy: Strategy::EqualPartition,
        fragment_bytes: 2048,
        tune_channels: false,
        batch_reads: false,
        give_up_after: 100 * SECOND,
    };
    let mut machine = Machine::new(config, Time::ZERO);
    machine.handle_control_connected();
    machine.handle_channel_connected(Time::ZERO, 0, 0, &PathInfo::default());
    machine
}

fn hear(machine: &mut Machine, now: Time, packet: &Control) {
    let mut bytes = Vec::new();
    packet::encode(packet, &mut bytes);
    machine.handle_control_bytes(now, &bytes, &ended()).expect("an honest peer");
}

/// A machine that has closed, as has its peer, which has not confirmed that it knows.
fn both_closed() -> Machine {
    let mut machine = machine(Role::Listener);
    hear(&mut machine, Time::ZERO, &Control::Close { messages: 0 });
    machine.close();
    assert!(!machine.is_finished(Time::ZERO));
    machine
}

#[test]
fn a_peer_that_has_closed_and_ends_its_connections_knows_everything() {
    let mut machine = both_closed();
    machine.handle_control_ended(at(SECOND));
    assert!(machine.is_finished(at(SECOND)));
}

#[test]
fn a_peer_whose_control_connection_is_lost_is_waited_for() {
    let mut machine = both_closed();
    machine.handle_control_lost(at(SECOND));
    assert!(!machine.is_finished(at(6 * SECOND - Duration::from_nanos(1))));
    assert!(machine.is_finished(at(6 * SECOND)), "it is not waited for without end");
    machine.handle_control_connected();
    assert!(!machine.is_finished(at(6 * SECOND)), "it is back");
    let report = Report { completed_below: 0, close_heard: true, channels: Vec::new() };
    hear(&mut machine, at(6 * SECOND), &Control::Report(report));
    assert!(machine.is_finished(at(6 * SECOND)));
}

#[test]
fn a_peer_whose_rails_were_silent_before_its_connections_ended_is_waited_for() {
    let mut machine = both_closed();
    for now in [SECOND, SECOND + Duration::from_millis(300)] {
        machine.handle_timeout(at(now), &silent());
    }
    machine.handle_control_ended(at(2 * SECOND));
    assert!(!machine.is_finished(at(7 * SECOND - Duration::from_nanos(1))));
    assert!(machine.is_finished(at(7 * SECOND)));
}

/// Refuses the control connection for three seconds, with maintenance before and after.
fn refuse(machine: &mut Machine) {
    machine.handle_control_ended(Time::ZERO);
    for now in [Duration::ZERO, 3 * SECOND] {
        machine.handle_control_redial_failed(at(now), true);
        machine.handle_timeout(at(now), &ended());
        machine.handle_timeout(at(now + SECOND), &ended());
    }
}

#[test]
fn unread_bytes_do_not_hide_that_the_peer_has_left_while_this_side_closes() {
    let mut waits = machine(Role::Dialler);
    waits.begin_message(Time::ZERO, 3, Some(vec![0; 3]), 1, &ended());
    waits.close();
    refuse(&mut waits);
    assert!(matches!(waits.failure(), Some(Failure::Aborted(_))), "{:?}", waits.failure());
    let mut reads = machine(Role::Dialler);
    refuse(&mut reads);
    assert_eq!(reads.failure(), None, "what is unread may be a message");
}

#[test]
fn unread_bytes_do_not_hold_back_what_was_sent_on_a_channel_that_the_peer_has_closed() {
    let maintained = |sends: bool, peer_goes_on: bool| {
        let mut machine = machine(Role::Listener);
        if sends {
            machine.begin_message(Time::ZERO, 3, Some(vec![0; 3]), 1, &ended());
            machine.begin_round(Time::ZERO, &ended());
            assert!(machine.claim(Time::ZERO, 0));
        }
        if !peer_goes_on {
            machine.handle_control_ended(Time::ZERO);
        }
        machine.handle_timeout(at(SECOND), &ended());
        machine.channels().next().expect("a channel").up
    };
    assert!(!maintained(true, true), "it is sent on another channel");
    assert!(maintained(false, true), "a message may be unread");
    assert!(maintained(true, false), "a message of a peer that has left may be unread");
}

#[test]
fn a_peer_that_has_everything_may_leave_before_it_has_said_so() {
    let mut machine = machine(Role::Dialler);
    machine.close();
    refuse(&mut machine);
    assert!(machine.is_finished(at(4 * SECOND)), "{:?}", machine.failure());
}
