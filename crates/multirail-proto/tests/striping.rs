//! Every strategy, whatever happens: random channels, sizes, orders of asking, losses, joins and
//! second copies, against an oracle that counts bytes one by one.

use multirail_proto::ledger::Ledger;
use multirail_proto::rng::Rng;
use multirail_proto::striping::{Channel, ChannelView, Direction, Framing, Next, Run, Strategy, Striping};
use multirail_testing::{for_seeds, proptest_config};
use proptest::prelude::*;
use proptest::strategy::Strategy as Generator;
use std::collections::VecDeque;
use std::ops::Range;

/// More channels than this would only make cases slow.
const MAX_CHANNELS: usize = 12;

/// What can happen. Numbers are taken modulo what there is to choose from.
#[derive(Debug, Clone)]
enum Step {
    Ask(usize),
    /// Every channel asks once. If any byte is unclaimed, at least one channel must get a run.
    AskAll,
    /// The oldest run of a channel arrives.
    Arrive(usize),
    Lose(usize),
    Join(f64),
    Rate(usize, f64),
    Rescue(usize),
}

fn rate() -> impl Generator<Value = f64> {
    // Unknown, or 10 kB/s to 10 GB/s.
    prop_oneof![1 => Just(0.0), 4 => (4.0..10.0f64).prop_map(|e| 10f64.powf(e))]
}
fn step() -> impl Generator<Value = Step> {
    prop_oneof![
        30 => any::<usize>().prop_map(Step::Ask),
        2 => Just(Step::AskAll),
        12 => any::<usize>().prop_map(Step::Arrive),
        1 => any::<usize>().prop_map(Step::Lose),
        1 => rate().prop_map(Step::Join),
        2 => (any::<usize>(), rate()).prop_map(|(c, r)| Step::Rate(c, r)),
        4 => any::<usize>().prop_map(Step::Rescue),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    total_bytes: u64,
    fragment_bytes: u64,
    /// Rate, latency in us, and whether it is up when the message begins.
    channels: Vec<(f64, f64, bool)>,
    steps: Vec<Step>,
}

fn case() -> impl Generator<Value = Case> {
    let total = prop_oneof![
        1 => Just(0u64),
        2 => 1..200u64,
        2 => 4000..4200u64,
        4 => 1..300_000u64,
        2 => 1..4_000_000u64,
    ];
    let count = prop::sample::select(vec![1usize, 2, 3, 4, 5, 7, 8]);
    (
        total,
        1..3000u64,
        count.prop_flat_map(move |k| prop::collection::vec((rate(), 1.0..50_000.0f64, prop::bool::weighted(0.95)), k)),
    )
        .prop_flat_map(|(total_bytes, parts, channels)| {
            let steps = prop::collection::vec(step(), 0..400);
            (Just(total_bytes), Just((total_bytes / parts).max(1)), Just(channels), steps)
        })
        .prop_map(|(total_bytes, fragment_bytes, channels, steps)| Case {
            total_bytes,
            fragment_bytes,
            channels,
            steps,
        })
}

/// Sender, channels and receiver of one message, and the count of every byte.
struct World {
    case: Case,
    striping: Striping,
    views: Vec<ChannelView>,
    /// Claimed and not arrived, per channel, in order.
    outstanding: Vec<VecDeque<Range<u64>>>,
    /// Where the far end of each channel expects the next fragment that is announced by a marker
    /// only.
    expected: Vec<Option<(Range<u64>, Direction)>>,
    /// For each byte: 1 if it is unclaimed or was given back.
    free: Vec<u8>,
    free_bytes: u64,
    ledger: Ledger,
    arrived_empty: bool,
    runs: u64,
    given_back: u64,
    lost_or_joined: u64,
}

impl World {
    fn new(strategy: Strategy, case: &Case) -> Self {
        let mut views: Vec<ChannelView> = Vec::new();
        for &(rate_bytes_s, latency_us, up) in &case.channels {
            views.push(ChannelView { up, rate_bytes_s, latency_us, backlog_bytes: 0, max_run_bytes: u64::MAX });
        }
        let channels = views.len();
        Self {
            striping: Striping::new(strategy, case.total_bytes, case.fragment_bytes, &views),
            views,
            outstanding: vec![VecDeque::new(); channels],
            expected: vec![None; channels],
            free: vec![1; case.total_bytes as usize],
            free_bytes: case.total_bytes,
            ledger: Ledger::default(),
            arrived_empty: false,
            runs: 0,
            given_back: 0,
            lost_or_joined: 0,
            case: case.clone(),
        }
    }

    fn step(&mut self, step: &Step) {
        let channels = self.views.len();
        match *step {
            Step::Ask(c) => {
                self.ask(c % channels);
            }
            Step::AskAll => self.ask_all(),
            Step::Arrive(c) => self.arrive(c % channels),
            Step::Lose(c) => self.lose(c % channels),
            Step::Join(rate) if channels < MAX_CHANNELS => self.join(rate),
            Step::Join(_) => {}
            Step::Rate(c, rate) => self.views[c % channels].rate_bytes_s = rate,
            Step::Rescue(c) => self.rescue(c % channels),
        }
        assert_eq!(self.striping.unclaimed_bytes(), self.free_bytes, "after {step:?}");
    }

    /// Whether `channel` got a run.
    fn ask(&mut self, channel: Channel) -> bool {
        match self.striping.next(channel, &self.views) {
            Next::Run(run) => {
                assert!(self.views[channel].up, "a channel that is down got {run:?}");
                self.check_framing(channel, &run);
                self.claim(&run.range);
                self.hold(channel, run.range);
                self.runs += 1;
                true
            }
            Next::Wait => {
                assert!(self.views[channel].up);
                assert!(self.free_bytes > 0, "channel {channel} waits for nothing");
                false
            }
            Next::Done => false,
        }
    }

    /// Bytes are claimed once, unless given back meanwhile.
    fn claim(&mut self, range: &Range<u64>) {
        assert!(range.start <= range.end && range.end <= self.case.total_bytes, "{range:?} is out of range");
        assert_eq!(range.is_empty(), self.case.total_bytes == 0, "{range:?}");
        let bytes = &mut self.free[range.start as usize..range.end as usize];
        let all_free = vec![1u8; bytes.len()];
        assert!(bytes == all_free.as_slice(), "part of {range:?} was claimed before");
        bytes.fill(0);
        self.free_bytes -= range.end - range.start;
    }

    fn hold(&mut self, channel: Channel, range: Range<u64>) {
        self.views[channel].backlog_bytes += range.end - range.start;
        self.outstanding[channel].push_back(range);
    }

    /// A receiver must know from the announcements alone where every fragment belongs.
    fn check_framing(&mut self, channel: Channel, run: &Run) {
        let fragment = self.case.fragment_bytes;
        let fragment_at = |start: u64| start..self.case.total_bytes.min(start + fragment);
        match run.framing {
            Framing::Header => return,
            Framing::Start(direction) => self.expected[channel] = Some((run.range.clone(), direction)),
            Framing::Continue => {
                let (last, direction) = self.expected[channel].clone().expect("a marker without a Start");
                let next = match direction {
                    Direction::Increment => fragment_at(last.end),
                    Direction::Decrement => fragment_at(last.start - fragment),
                };
                assert_eq!(run.range, next, "channel {channel} goes on {direction:?} from {last:?}");
                self.expected[channel] = Some((next, direction));
            }
        }
        assert_eq!(self.striping.strategy(), Strategy::TwoEnded);
        assert_eq!(run.range, fragment_at(run.range.start), "one fragment at a time");
    }

    fn ask_all(&mut self) {
        let left = self.free_bytes > 0 || (self.case.total_bytes == 0 && self.runs == 0);
        let served = (0..self.views.len()).filter(|&c| self.ask(c)).count();
        let any_up = self.views.iter().any(|v| v.up);
        assert!(served > 0 || !left || !any_up, "no channel gets a run of {} bytes", self.free_bytes);
    }

    fn arrive(&mut self, channel: Channel) {
        if let Some(range) = self.outstanding[channel].pop_front() {
            self.views[channel].backlog_bytes -= range.end - range.start;
            self.arrived_empty |= range.is_empty();
            self.ledger.insert(range);
        }
    }

    /// One channel always stays.
    fn lose(&mut self, channel: Channel) {
        if !self.views[channel].up || self.views.iter().filter(|v| v.up).count() == 1 {
            return;
        }
        self.views[channel].up = false;
        self.views[channel].backlog_bytes = 0;
        self.lost_or_joined += 1;
        self.striping.channel_lost(channel, &self.views);
        for range in std::mem::take(&mut self.outstanding[channel]) {
            if range.is_empty() {
                self.striping.give_back(range);
                self.runs = 0;
                continue;
            }
            for gap in self.ledger.missing(range) {
                self.give_back(gap);
            }
        }
    }

    /// Gives back what of `gap` is neither free already (the channel had two copies) nor under way
    /// on another channel.
    fn give_back(&mut self, gap: Range<u64>) {
        let mut parts = vec![gap];
        for other in self.outstanding.iter().flatten() {
            parts = parts.into_iter().flat_map(|p| without(p, other)).collect();
        }
        for Range { mut start, end } in parts {
            while start < end {
                let same = self.free[start as usize];
                let alike = self.free[start as usize..end as usize].iter().take_while(|&&b| b == same).count() as u64;
                if same == 0 {
                    self.free[start as usize..(start + alike) as usize].fill(1);
                    self.free_bytes += alike;
                    self.given_back += 1;
                    self.striping.give_back(start..start + alike);
                }
                start += alike;
            }
        }
    }

    fn join(&mut self, rate_bytes_s: f64) {
        self.views.push(ChannelView {
            up: true,
            rate_bytes_s,
            latency_us: 100.0,
            backlog_bytes: 0,
            max_run_bytes: u64::MAX,
        });
        self.outstanding.push(VecDeque::new());
        self.expected.push(None);
        self.lost_or_joined += 1;
    }

    fn rescue(&mut self, idle: Channel) {
        let sent = self.outstanding.iter().enumerate();
        let sent: Vec<(Channel, Range<u64>)> = sent.flat_map(|(c, q)| q.iter().map(move |r| (c, r.clone()))).collect();
        if let Some(range) = self.striping.rescue(idle, &self.views, &sent) {
            assert!(self.views[idle].up && !range.is_empty());
            let stuck = |(c, r): &(Channel, Range<u64>)| *c != idle && r.start <= range.start && range.end <= r.end;
            assert!(sent.iter().any(stuck), "{range:?} is no other's");
            self.hold(idle, range);
        }
    }

    /// Nothing more happens than asking and arriving: everything must get there, in a bounded
    /// number of runs.
    fn finish(&mut self) {
        let fragments = self.case.total_bytes / self.case.fragment_bytes;
        // A run is a fragment, what is left of a part, or about a packet at least; and there are
        // not many others.
        let others = (1 + self.given_back + self.lost_or_joined) * 40 * (self.views.len() as u64);
        let bound = self.runs + fragments + self.case.total_bytes / 1024 + others;
        while self.ledger.bytes() < self.case.total_bytes || (self.case.total_bytes == 0 && !self.arrived_empty) {
            self.ask_all();
            assert_eq!(self.striping.unclaimed_bytes(), self.free_bytes);
            assert!(self.runs <= bound, "{} runs, at most {bound} expected", self.runs);
            (0..self.views.len()).for_each(|c| self.arrive(c));
        }
        assert_eq!(self.free_bytes, 0);
        for channel in 0..self.views.len() {
            assert_eq!(self.striping.next(channel, &self.views), Next::Done);
        }
        (0..self.views.len()).for_each(|c| self.outstanding[c].clear());
    }
}

fn without(range: Range<u64>, other: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = range.start..range.end.min(other.start.max(range.start));
    let after = range.start.max(other.end.min(range.end))..range.end;
    // An `other` that does not overlap leaves the range whole, on one of the two sides.
    [before, after].into_iter().filter(|r| !r.is_empty())
}

fn exactly_once(strategy: Strategy, case: &Case) {
    let mut world = World::new(strategy, case);
    for step in &case.steps {
        world.step(step);
    }
    if world.views.iter().all(|v| !v.up) {
        // Nothing was up when the message began, and nothing joined.
        world.ask_all();
        world.join(1e6);
    }
    world.finish();
}

proptest! {
    #![proptest_config(proptest_config(150))]

    #[test]
    fn single(case in case()) { exactly_once(Strategy::Single, &case); }

    #[test]
    fn equal_partition(case in case()) { exactly_once(Strategy::EqualPartition, &case); }

    #[test]
    fn shared_counter(case in case()) { exactly_once(Strategy::SharedCounter, &case); }

    #[test]
    fn two_ended(case in case()) { exactly_once(Strategy::TwoEnded, &case); }

    #[test]
    fn adaptive(case in case()) { exactly_once(Strategy::Adaptive, &case); }
}

#[test]
fn an_empty_message_survives_its_channel() {
    let up = ChannelView { up: true, rate_bytes_s: 0.0, latency_us: 0.0, backlog_bytes: 0, max_run_bytes: u64::MAX };
    for &strategy in Strategy::ALL {
        let mut views = [up, up];
        let mut striping = Striping::new(strategy, 0, 10, &views);
        let asked: Vec<Next> = (0..2).map(|c| striping.next(c, &views)).collect();
        let teller = asked.iter().position(|n| matches!(n, Next::Run(r) if r.range.is_empty())).unwrap();
        assert_eq!(asked[1 - teller], Next::Done, "{strategy} tells twice");
        views[teller].up = false;
        striping.channel_lost(teller, &views);
        striping.give_back(0..0);
        assert!(matches!(striping.next(1 - teller, &views), Next::Run(r) if r.range.is_empty()), "{strategy}");
        assert_eq!(striping.next(1 - teller, &views), Next::Done);
    }
}

/// A message of 2 MiB in fragments of 2 KiB, as in section 5.2 of Enhanced MuniSocket, over
/// channels whose speeds change at random. Every *Start* must be needed: the fragment after the
/// channel's last one, in its direction, is taken, or another channel takes it.
#[test]
fn two_ended_announces_no_fragment_that_its_receiver_expects() {
    const FRAGMENTS: u64 = 1024;
    const FRAGMENT_BYTES: u64 = 2 << 10;
    let up = ChannelView { up: true, rate_bytes_s: 0.0, latency_us: 0.0, backlog_bytes: 0, max_run_bytes: u64::MAX };
    for_seeds(100, |seed| {
        let mut rng = Rng::new(seed);
        let channels = 2 + rng.below(7) as usize;
        let views = vec![up; channels];
        let mut striping = Striping::new(Strategy::TwoEnded, FRAGMENTS * FRAGMENT_BYTES, FRAGMENT_BYTES, &views);
        // By fragment: the channel that has taken it. By channel: the fragment that its receiver
        // expects.
        let mut takers: Vec<Option<Channel>> = vec![None; FRAGMENTS as usize];
        let mut expected: Vec<Option<(Option<usize>, Direction)>> = vec![None; channels];
        let mut left_to_others = Vec::new();
        // When each channel asks next; those that have been told that all is claimed ask no more.
        let mut asks_at: Vec<f64> = (0..channels).map(|_| rng.unit()).collect();
        while let Some(channel) = (0..channels).min_by(|a, b| asks_at[*a].total_cmp(&asks_at[*b])) {
            if asks_at[channel].is_infinite() {
                break;
            }
            let Next::Run(run) = striping.next(channel, &views) else {
                asks_at[channel] = f64::INFINITY;
                continue;
            };
            let fragment = (run.range.start / FRAGMENT_BYTES) as usize;
            assert_eq!(takers[fragment].replace(channel), None, "fragment {fragment} is sent twice");
            let direction = match (run.framing, expected[channel]) {
                (Framing::Continue, Some((Some(next), direction))) if next == fragment => direction,
                (Framing::Start(direction), None) => direction,
                (Framing::Start(direction), Some((next, _))) => {
                    let free = next.filter(|next| takers.get(*next) == Some(&None));
                    left_to_others.extend(free.map(|next| (next, channel)));
                    assert_ne!(free, Some(fragment), "channel {channel} announces what its receiver expects");
                    direction
                }
                (framing, expected) => panic!("channel {channel}: {framing:?} for {fragment}, {expected:?} expected"),
            };
            let next = match direction {
                Direction::Increment => Some(fragment + 1),
                Direction::Decrement => fragment.checked_sub(1),
            };
            expected[channel] = Some((next, direction));
            // Speeds differ by up to eight times, and change now and then.
            asks_at[channel] += rng.exponential(1.0) * (1 + rng.below(8)) as f64;
        }
        assert!(takers.iter().all(Option::is_some));
        for (fragment, channel) in left_to_others {
            assert_ne!(takers[fragment], Some(channel), "channel {channel} came back to fragment {fragment}");
        }
    });
}
