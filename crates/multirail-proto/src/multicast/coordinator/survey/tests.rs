use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

/// Hosts with round trips that the clusters `of` decide.
struct Net {
    of: Vec<u32>,
    near_us: u32,
    far_us: u32,
    /// On links between clusters, beside a broadcast.
    queue_us: u32,
    /// At the port of the root, beside a broadcast.
    root_us: u32,
    /// From this time on, clusters 1 and 2 have no queue between them.
    idle_from_us: u64,
    rng: Rng,
}

impl Net {
    fn rtt_us(&mut self, now_us: u64, one: MemberId, other: MemberId) -> u32 {
        let is_loaded = now_us > LOADED_AFTER_US[0];
        let (from, to) = (self.of[one as usize], self.of[other as usize]);
        let is_idle = !is_loaded || (now_us >= self.idle_from_us && (from.min(to), from.max(to)) == (1, 2));
        let base_us = match from == to {
            true => self.near_us,
            false => self.far_us + if is_idle { 0 } else { self.queue_us },
        };
        let port_us = if is_loaded && one.min(other) == 0 { self.root_us } else { 0 };
        (f64::from(base_us) * (1.0 + 0.4 * self.rng.unit())) as u32 + port_us
    }

    /// Runs the survey to its end. Returns the clusters in force, the number of changes and of measurements.
    fn survey(&mut self, guess: &[u32], silent: &[MemberId], seed: u64) -> (Vec<u32>, usize, usize) {
        let present = (0..guess.len() as MemberId).collect();
        let mut survey = Survey::begin(0, guess.to_vec(), present, seed);
        let (mut now_us, mut clusters, mut changes, mut measured) = (0, numbered(guess), 0, 0);
        while let Some(at_us) = survey.poll_timeout() {
            while let Some(action) = survey.poll_action() {
                match action {
                    SurveyAction::Regroup(new) => (clusters, changes) = (new, changes + 1),
                    SurveyAction::Measure { by, round, targets } => {
                        assert!(targets.len() <= MAX_TARGETS && !targets.contains(&by) && !targets.contains(&0));
                        measured += targets.len();
                        if silent.contains(&by) {
                            continue;
                        }
                        let told = targets.iter().map(|to| match silent.contains(to) {
                            true => None,
                            false => Some(self.rtt_us(now_us, by, *to)),
                        });
                        let told: Vec<_> = told.collect();
                        survey.handle_measured(now_us + 1000, by, round, &told);
                    }
                }
            }
            if survey.poll_timeout() == Some(at_us) {
                now_us = now_us.max(at_us);
                survey.handle_timeout(now_us);
            }
        }
        while let Some(action) = survey.poll_action() {
            if let SurveyAction::Regroup(new) = action {
                (clusters, changes) = (new, changes + 1);
            }
        }
        (clusters, changes, measured)
    }
}

/// Hosts in turns, so that numbers do not reveal clusters.
fn in_turns(sizes: &[usize]) -> Vec<u32> {
    let mut of = Vec::new();
    for rank in 0..sizes.iter().copied().max().unwrap_or(0) {
        of.extend((0u32..).zip(sizes).filter(|(_, size)| rank < **size).map(|(cluster, _)| cluster));
    }
    of
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(2usize..12, 2..6)
}

proptest! {
    #[test]
    fn a_right_guess_stays(sizes in sizes(), far_us in 2000u32..200_000, seed: u64) {
        let of = in_turns(&sizes);
        let mut net = Net { of: of.clone(), near_us: 100, far_us, queue_us: 0, root_us: 0, idle_from_us: u64::MAX, rng: Rng::new(seed) };
        let (_, changes, measured) = net.survey(&of, &[], seed);
        prop_assert_eq!(changes, 0);
        prop_assert!(of.len() <= MAX_ALL_PAIRS || measured <= 8 * of.len(), "{} for {} hosts", measured, of.len());
    }

    #[test]
    fn any_wrong_guess_is_corrected(sizes in sizes(), wrong in prop::collection::vec(0u32..6, 60), seed: u64) {
        let of = in_turns(&sizes);
        let mut net = Net { of: of.clone(), near_us: 100, far_us: 20_000, queue_us: 0, root_us: 0, idle_from_us: u64::MAX, rng: Rng::new(seed) };
        let (clusters, changes, _) = net.survey(&wrong[..of.len()], &[], seed);
        prop_assert_eq!(clusters, numbered(&of));
        prop_assert!(changes <= 2, "{} changes", changes);
    }

    #[test]
    fn queues_tell_clusters_apart_where_idle_links_do_not(sizes in sizes(), seed: u64) {
        let of = in_turns(&sizes);
        let mut net = Net { of: of.clone(), near_us: 100, far_us: 120, queue_us: 30_000, root_us: 0, idle_from_us: u64::MAX, rng: Rng::new(seed) };
        let (clusters, ..) = net.survey(&vec![0; of.len()], &[], seed);
        prop_assert_eq!(clusters, numbered(&of));
        prop_assert_eq!(net.survey(&of, &[], seed).1, 0, "a right guess stays");
    }

    #[test]
    fn a_queue_at_the_port_of_the_root_does_not_set_it_apart(
        sizes in prop::collection::vec(2usize..6, 2..4),
        root_us in 0u32..400_000,
        seed: u64,
    ) {
        let of = in_turns(&sizes);
        let rng = Rng::new(seed);
        let mut near = Net { of: of.clone(), near_us: 100, far_us: 120, queue_us: 0, root_us, idle_from_us: u64::MAX, rng };
        prop_assert_eq!(near.survey(&vec![0; of.len()], &[], seed).1, 0, "only the root's port has a queue");
        near.queue_us = 30_000;
        prop_assert_eq!(near.survey(&vec![0; of.len()], &[], seed).0, numbered(&of));
    }

    #[test]
    fn an_empty_queue_does_not_join_what_queues_have_split(
        sizes in prop::collection::vec(2usize..6, 3..4),
        seed: u64,
    ) {
        let of = in_turns(&sizes);
        // The first two rounds beside the broadcast begin before this time.
        let idle_from_us = LOADED_AFTER_US[0] + 2 * LOADED_AFTER_US[1];
        let rng = Rng::new(seed);
        let mut net = Net { of: of.clone(), near_us: 100, far_us: 120, queue_us: 30_000, root_us: 0, idle_from_us, rng };
        let (clusters, changes, _) = net.survey(&vec![0; of.len()], &[], seed);
        prop_assert_eq!((clusters, changes), (numbered(&of), 1));
    }

    #[test]
    fn an_empty_queue_does_not_join_what_the_guess_tells_apart(
        sizes in prop::collection::vec(2usize..20, 3..5),
        seed: u64,
    ) {
        let of = in_turns(&sizes);
        let mut net = Net { of: of.clone(), near_us: 100, far_us: 120, queue_us: 30_000, root_us: 0, idle_from_us: 0, rng: Rng::new(seed) };
        prop_assert_eq!(net.survey(&of, &[], seed).1, 0);
    }

    #[test]
    fn hosts_that_are_alone_in_the_guess_are_joined(sizes in sizes(), seed: u64) {
        let of = in_turns(&sizes);
        let alone: Vec<u32> = (0..of.len() as u32).collect();
        let mut net = Net { of: of.clone(), near_us: 100, far_us: 120, queue_us: 30_000, root_us: 0, idle_from_us: u64::MAX, rng: Rng::new(seed) };
        prop_assert_eq!(net.survey(&alone, &[], seed).0, numbered(&of));
    }

    #[test]
    fn hosts_that_do_not_answer_stay_with_their_neighbours(sizes in sizes(), seed: u64) {
        let of = in_turns(&sizes);
        let mut net = Net { of: of.clone(), near_us: 100, far_us: 20_000, queue_us: 0, root_us: 0, idle_from_us: u64::MAX, rng: Rng::new(seed) };
        let last = of.len() as MemberId - 1;
        let (clusters, changes, _) = net.survey(&of, &[last], seed);
        prop_assert_eq!((clusters, changes), (numbered(&of), 0));
    }

    #[test]
    fn hosts_that_are_alike_stay_as_they_are(guess in prop::collection::vec(0u32..6, 2..60), seed: u64) {
        let mut net = Net { of: vec![0; guess.len()], near_us: 150, far_us: 150, queue_us: 0, root_us: 0, idle_from_us: u64::MAX, rng: Rng::new(seed) };
        prop_assert_eq!(net.survey(&guess, &[], seed).1, 0);
    }

    /// Whatever members answer and whenever they come and go, the survey ends, and groups all hosts.
    #[test]
    fn any_answers_end(
        guess in prop::collection::vec(0u32..6, 1..40),
        events in prop::collection::vec((0u8..4, 0u32..40, prop::collection::vec(prop::option::of(any::<u32>()), 0..70)), 0..80),
        seed: u64,
    ) {
        let mut survey = Survey::begin(0, guess.clone(), (0..guess.len() as MemberId).collect(), seed);
        let mut now_us = 0;
        for (kind, member, told) in events {
            let member = member % guess.len() as u32;
            match kind {
                0 => survey.handle_joined(member),
                1 => survey.handle_lost(now_us, member),
                2 => survey.handle_measured(now_us, member, told.len() as u32 % 4, &told),
                _ => {
                    now_us += 200_000;
                    survey.handle_timeout(now_us);
                }
            }
        }
        let mut steps = 0;
        while let Some(at_us) = survey.poll_timeout() {
            survey.handle_timeout(now_us.max(at_us));
            steps += 1;
            prop_assert!(steps < 100);
        }
        while let Some(action) = survey.poll_action() {
            if let SurveyAction::Regroup(clusters) = action {
                prop_assert_eq!(clusters.len(), guess.len());
                prop_assert_eq!(numbered(&clusters), clusters);
            }
        }
    }
}
