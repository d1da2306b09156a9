//! The paper's worked example, and each rule of the module's documentation.

use super::super::run::Direction::{Decrement, Increment};
use super::*;

const UP: ChannelView =
    ChannelView { up: true, rate_bytes_s: 0.0, latency_us: 0.0, backlog_bytes: 0, max_run_bytes: u64::MAX };

/// The fragment (from 0, of 10 bytes) that `channel` gets, and its announcement.
fn claim(s: &mut TwoEnded, channel: Channel) -> (u64, Framing) {
    match s.next(channel, &[]) {
        Next::Run(run) => (run.range.start / 10, run.framing),
        other => panic!("channel {channel}: {other:?}"),
    }
}

fn fragments(s: &mut TwoEnded, channel: Channel, count: usize) -> Vec<u64> {
    (0..count).map(|_| claim(s, channel).0).collect()
}

fn rail(rate_bytes_s: f64) -> ChannelView {
    ChannelView { rate_bytes_s, ..UP }
}

#[test]
fn one_channel_goes_from_left_to_right() {
    let mut s = TwoEnded::new(25, 10, &[UP]);
    assert_eq!(claim(&mut s, 0), (0, Framing::Start(Increment)));
    assert_eq!(claim(&mut s, 0), (1, Framing::Continue));
    assert_eq!(s.next(0, &[]), Next::Run(Run { range: 20..25, framing: Framing::Continue }));
    assert_eq!(s.next(0, &[]), Next::Done);
}

#[test]
fn two_channels_meet() {
    let mut s = TwoEnded::new(55, 10, &[UP, UP]);
    assert_eq!(s.next(1, &[]), Next::Run(Run { range: 50..55, framing: Framing::Start(Decrement) }));
    assert_eq!(claim(&mut s, 0), (0, Framing::Start(Increment)));
    assert_eq!(fragments(&mut s, 1, 3), [4, 3, 2]);
    assert_eq!(claim(&mut s, 0), (1, Framing::Continue));
    assert_eq!(s.unclaimed_bytes(), 0);
    assert_eq!([s.next(0, &[]), s.next(1, &[])], [Next::Done, Next::Done]);
}

/// Section 5.1, figure 9. Channels 0 to 3 are the paper's threads 1 to 4, and its fragment numbers
/// count from 1.
#[test]
fn the_worked_example() {
    let mut s = TwoEnded::new(400, 10, &[UP; 4]);
    fragments(&mut s, 0, 4);
    fragments(&mut s, 1, 2);
    assert_eq!(fragments(&mut s, 2, 12).last(), Some(&(32 - 1)));
    assert_eq!(fragments(&mut s, 3, 8).last(), Some(&(33 - 1)));
    let contributions: Vec<f64> = (0..4).map(|c| s.contribution(Some(c)).unwrap()).collect();
    assert_eq!(contributions, [4.0, 2.0, 12.0, 8.0]);
    let (p_il, p_dr) = (s.partitions[0].unsent.start + 1, s.partitions[0].unsent.end);
    assert_eq!((p_il, p_dr), (5, 18));

    let mut helped = TwoEnded { partitions: s.partitions.clone(), members: s.members.clone(), ..s };
    helped.help(1, 0);
    let [left, right] = &helped.partitions[..] else { panic!() };
    assert_eq!((left.incremental, left.decremental), (Some(0), Some(3)), "t_il = t1, t_dl = t4");
    assert_eq!((right.incremental, right.decremental), (Some(2), Some(1)), "t_ir = t3, t_dr = t2");
    assert_eq!(left.fragments(), 6, "U(left part)");
    assert_eq!((left.unsent.end, right.unsent.start + 1), (10, 11), "P(t_dl), P(t_ir)");
    assert_eq!((left.unsent.start + 1, right.unsent.end), (5, 18), "P(t_il), P(t_dr) stay");

    // The same by requests: free channels announce their new places, busy ones continue.
    assert_eq!(claim(&mut helped, 2), (11 - 1, Framing::Start(Increment)));
    assert_eq!(claim(&mut helped, 3), (10 - 1, Framing::Start(Decrement)));
    assert_eq!(claim(&mut helped, 0), (5 - 1, Framing::Continue));
    assert_eq!(claim(&mut helped, 1), (18 - 1, Framing::Continue));
}

#[test]
fn either_channel_of_a_free_pair_moves_both() {
    for asker in [2, 3] {
        let mut s = TwoEnded::new(400, 10, &[UP; 4]);
        fragments(&mut s, 0, 4);
        fragments(&mut s, 1, 2);
        fragments(&mut s, 2, 12);
        fragments(&mut s, 3, 8);
        let expected = if asker == 2 { (10, Framing::Start(Increment)) } else { (9, Framing::Start(Decrement)) };
        assert_eq!(claim(&mut s, asker), expected);
        assert!(s.members.iter().flatten().all(|m| !s.partitions[m.partition].unsent.is_empty()));
    }
}

#[test]
fn the_partition_with_most_unsent_fragments_is_helped_first() {
    let mut s = TwoEnded::new(600, 10, &[UP; 6]);
    fragments(&mut s, 0, 20);
    fragments(&mut s, 2, 5);
    // Partition 1 has 15 unsent, partition 2 has all of its 20.
    let (fragment, _) = claim(&mut s, 0);
    assert!((40..60).contains(&fragment), "{fragment}");
}

#[test]
fn partitions_follow_rates_and_unknown_rates_are_average() {
    let s = TwoEnded::new(1000, 10, &[rail(30.0), rail(30.0), rail(10.0), rail(10.0)]);
    assert_eq!(s.partitions.iter().map(Partition::fragments).collect::<Vec<_>>(), [75, 25]);
    let s = TwoEnded::new(1000, 10, &[rail(60.0), rail(20.0), rail(0.0), rail(0.0)]);
    assert_eq!(s.partitions.iter().map(Partition::fragments).collect::<Vec<_>>(), [50, 50]);
}

#[test]
fn of_an_odd_number_the_slowest_is_alone() {
    let s = TwoEnded::new(1000, 10, &[rail(30.0), rail(10.0), rail(60.0)]);
    assert_eq!((s.partitions[0].incremental, s.partitions[0].decremental), (Some(0), Some(2)));
    assert_eq!((s.partitions[1].incremental, s.partitions[1].decremental), (Some(1), None));
    assert_eq!(s.partitions[1].fragments(), 10);
}

#[test]
fn a_free_pair_joins_and_relieves_a_single_busy_channel() {
    let mut s = TwoEnded::new(300, 10, &[UP; 3]);
    assert_eq!(s.partitions[1].unsent, 20..30);
    fragments(&mut s, 0, 15);
    fragments(&mut s, 1, 5);
    fragments(&mut s, 2, 2);
    // 8 unsent from 22; left: channel 2 (2) and channel 1 (5), right: channel 0 (15) alone; 8 x 7 /
    // 22 = 2.
    assert_eq!(claim(&mut s, 0), (24, Framing::Start(Increment)));
    assert_eq!(claim(&mut s, 1), (23, Framing::Start(Decrement)));
    assert_eq!(claim(&mut s, 2), (22, Framing::Continue));
}

#[test]
fn a_single_free_channel_joins_the_less_busy_of_a_pair() {
    let mut s = TwoEnded::new(300, 10, &[UP; 3]);
    fragments(&mut s, 0, 2);
    fragments(&mut s, 1, 6);
    fragments(&mut s, 2, 10);
    // 12 unsent from 2; channel 0 is the less busy: left 0 and 2 (12), right 1 (6); 12 x 12 / 18 =
    // 8.
    assert_eq!(claim(&mut s, 2), (9, Framing::Start(Decrement)));
    assert_eq!(claim(&mut s, 0), (2, Framing::Continue));
    assert_eq!(claim(&mut s, 1), (13, Framing::Continue));
    assert_eq!(s.partitions[s.members[1].as_ref().unwrap().partition].unsent, 10..13);
}

#[test]
fn no_part_is_empty_whatever_the_contributions() {
    for (asker, expected) in [(3, (0, Framing::Start(Decrement))), (2, (1, Framing::Start(Increment)))] {
        let mut s = TwoEnded::new(400, 10, &[UP; 4]);
        fragments(&mut s, 2, 20);
        // Left: channels 0 and 3, which have sent nothing. Equation (4) would give them nothing.
        assert_eq!(claim(&mut s, asker), expected);
    }
}

#[test]
fn the_last_unsent_fragment_goes_to_the_free_channel_that_asks() {
    let mut s = TwoEnded::new(80, 10, &[UP; 4]);
    fragments(&mut s, 0, 4);
    fragments(&mut s, 2, 2);
    fragments(&mut s, 3, 1);
    assert_eq!(claim(&mut s, 1), (6, Framing::Start(Increment)));
    assert_eq!(s.next(2, &[]), Next::Done);
}

#[test]
fn the_partner_of_a_lost_channel_continues_alone() {
    for (lost, stays, rest) in [(0, 1, [3, 2, 1]), (1, 0, [1, 2, 3])] {
        let mut s = TwoEnded::new(50, 10, &[UP, UP]);
        fragments(&mut s, 0, 1);
        fragments(&mut s, 1, 1);
        assert!(s.lost(lost, &[]).is_empty());
        assert_eq!(fragments(&mut s, stays, 3), rest);
        assert_eq!(s.next(stays, &[]), Next::Done);
    }
}

#[test]
fn a_partition_without_channels_is_taken_over() {
    let mut s = TwoEnded::new(80, 10, &[UP; 4]);
    s.lost(0, &[]);
    s.lost(1, &[]);
    fragments(&mut s, 2, 4);
    assert_eq!(claim(&mut s, 3), (3, Framing::Start(Decrement)));
    assert_eq!(claim(&mut s, 2), (0, Framing::Start(Increment)));
    assert_eq!(fragments(&mut s, 3, 2), [2, 1]);
    assert_eq!(s.next(2, &[]), Next::Done);
}

#[test]
fn a_joiner_pairs_with_a_single_one_and_helps_a_pair() {
    let mut s = TwoEnded::new(80, 10, &[UP]);
    fragments(&mut s, 0, 1);
    assert_eq!(claim(&mut s, 1), (7, Framing::Start(Decrement)));
    let (third, framing) = claim(&mut s, 2);
    assert!((1..7).contains(&third) && matches!(framing, Framing::Start(_)));
    s.lost(0, &[]);
    s.lost(1, &[]);
    s.lost(2, &[]);
    let places = s.partitions.len();
    assert_eq!((0..5).map(|_| claim(&mut s, 3).0).filter(|&f| f != third).count(), 5);
    assert_eq!(s.unclaimed_bytes(), 0);
    assert_eq!(s.partitions.len(), places + 1, "none was vacant");
}
