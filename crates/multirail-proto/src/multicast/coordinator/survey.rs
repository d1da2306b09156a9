//! Finds the clusters while a broadcast runs.
//!
//! A broadcast begins with a guess: hosts of one subnet are near each other. The survey has the hosts
//! measure round trips to a few others, and corrects the guess. Each round measures every host with the
//! next ones of its cluster, which shows whether the cluster is one; some host of every cluster with one
//! of every other, which shows whether two clusters are one; and every host with a few at random, which
//! finds a way where the guess is of no use. A round of `n` hosts takes about `6 n` measurements; 16 hosts
//! or fewer measure all pairs.
//!
//! Round trips on idle links decide first. Sites that are near each other are told apart by the queues
//! that the broadcast itself makes on the links between them: later rounds look at round trips beside it.
//! A queue that is empty for a moment does not show that two sites are one, so these rounds join clusters
//! only if the same measurements split others, or if the guess has each host alone.
//! The root sends most, so the queue at its own port is in all of its round trips. Where all pairs are
//! measured, the shortest of these is subtracted from each.
//!
//! [`Survey`] is a state machine without I/O: `handle_*`, then [`Survey::poll_action`] until it returns
//! `None`, then [`Survey::poll_timeout`].

#[cfg(test)]
mod tests;

use crate::multicast::grouping::{self, RTT_STEP, RTT_STEP_US};
use crate::multicast::members::MemberId;
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most hosts for which a round measures all pairs.
const MAX_ALL_PAIRS: usize = 16;
/// The hosts of its cluster, by the distance in their order, that a host measures with.
const NEXT_IN_CLUSTER: [usize; 2] = [1, 2];
/// The hosts that a host measures with at random.
const AT_RANDOM: usize = 2;
/// With more pairs of clusters than this for each host, a round measures only what it draws at random.
const CLUSTER_PAIRS_A_HOST: usize = 4;
/// The most hosts that one host measures to in a round.
pub const MAX_TARGETS: usize = 64;
/// What has not been measured after this time does not count.
const ROUND_TIMEOUT_US: u64 = 3_000_000;
/// The most rounds on idle links: two that agree, and some to put clusters together from fragments.
const QUIET_ROUNDS: u32 = 6;
/// When rounds beside the broadcast begin, after the end of the one before.
const LOADED_AFTER_US: [u64; 9] = [700_000, 300_000, 500_000, 300_000, 700_000, 300_000, 1_500_000, 300_000, 8_000_000];
/// Beside a broadcast, ports within a cluster have queues, too: a millisecond is 125 KB at 1 Gbit/s.
const LOADED_STEP_US: f64 = 1_000.0;
/// Without what the root's port adds to it, a round trip of the root counts as at least this much.
const LOADED_LEAST_US: f64 = 100.0;

/// Something the driver carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurveyAction {
    /// This member measures round trips to others. Answered by [`Survey::handle_measured`].
    Measure {
        /// Who measures.
        by: MemberId,
        /// The number of the round.
        round: u32,
        /// Whom it reaches; at most [`MAX_TARGETS`].
        targets: Vec<MemberId>,
    },
    /// The cluster of each member is now known to be this one.
    Regroup(Vec<u32>),
}

/// The survey of a group. See the [module](self).
#[derive(Debug)]
pub struct Survey {
    clusters: Vec<u32>,
    present: BTreeSet<MemberId>,
    rng: Rng,
    stage: Stage,
    /// The number of the round, of all kinds.
    round: u32,
    /// Members that have not answered, and whom they measure to.
    asked: BTreeMap<MemberId, Vec<MemberId>>,
    /// The round trips in microseconds, of the pair with the lower number first.
    rtts_us: BTreeMap<(MemberId, MemberId), f64>,
    /// What the last round found, if that was another grouping than the one in force.
    candidate: Option<Vec<u32>>,
    /// The clusters in force are the guess, which has each host alone.
    each_is_alone: bool,
    /// The clusters in force were told apart by queues. Later rounds only split them.
    is_by_queues: bool,
    timeout_us: Option<u64>,
    actions: VecDeque<SurveyAction>,
}

/// Rounds that have ended, of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The first stage: links are idle, or have just begun to fill. Then `Loaded` or `Over`.
    Quiet(u32),
    /// Beside the broadcast. `true`: a round is being measured. Then `Over`.
    Loaded(usize, bool),
    /// The last stage.
    Over,
}

impl Survey {
    /// Begins to measure between the members that are `present`. `clusters` is the guess.
    pub fn begin(now_us: u64, clusters: Vec<u32>, present: BTreeSet<MemberId>, seed: u64) -> Self {
        let mut survey = Self {
            clusters: numbered(&clusters),
            present,
            rng: Rng::new(seed),
            stage: Stage::Quiet(0),
            round: 0,
            asked: BTreeMap::new(),
            rtts_us: BTreeMap::new(),
            candidate: None,
            each_is_alone: false,
            is_by_queues: false,
            timeout_us: None,
            actions: VecDeque::new(),
        };
        let count = survey.clusters.iter().collect::<BTreeSet<_>>().len();
        survey.each_is_alone = count == survey.clusters.len();
        survey.measure(now_us);
        survey
    }

    /// The next action. `None`: no action until the next event.
    pub fn poll_action(&mut self) -> Option<SurveyAction> {
        self.actions.pop_front()
    }

    /// When to call [`Survey::handle_timeout`]. `None`: the survey is over.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timeout_us
    }

    /// A member takes part from now on. One that joined the group after the survey began is not measured.
    pub fn handle_joined(&mut self, member: MemberId) {
        if (member as usize) < self.clusters.len() {
            self.present.insert(member);
        }
    }

    /// A member does not take part for now.
    pub fn handle_lost(&mut self, now_us: u64, member: MemberId) {
        self.present.remove(&member);
        if self.asked.remove(&member).is_some() {
            self.end_round_if_answered(now_us);
        }
    }

    /// The round trips that `by` measured for a round, in microseconds, in the order of the targets. Answers
    /// that were not asked for, or come late, are ignored.
    pub fn handle_measured(&mut self, now_us: u64, by: MemberId, round: u32, rtts_us: &[Option<u32>]) {
        if round != self.round {
            return;
        }
        let Some(targets) = self.asked.remove(&by) else { return };
        for (to, rtt_us) in targets.into_iter().zip(rtts_us) {
            if let Some(rtt_us) = rtt_us {
                let rtt_us = f64::from(*rtt_us).max(1.0);
                let known = self.rtts_us.entry((by.min(to), by.max(to))).or_insert(rtt_us);
                *known = known.min(rtt_us);
            }
        }
        self.end_round_if_answered(now_us);
    }

    /// The time of [`Survey::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now_us: u64) {
        if self.timeout_us.is_none_or(|at| now_us < at) {
            return;
        }
        match self.stage {
            Stage::Loaded(round, false) => {
                self.stage = Stage::Loaded(round, true);
                self.rtts_us.clear();
                self.measure(now_us);
            }
            Stage::Quiet(_) | Stage::Loaded(_, true) => self.end_round(now_us),
            Stage::Over => self.timeout_us = None,
        }
    }

    fn end_round_if_answered(&mut self, now_us: u64) {
        if self.asked.is_empty() && matches!(self.stage, Stage::Quiet(_) | Stage::Loaded(_, true)) {
            self.end_round(now_us);
        }
    }

    /// Begins a round.
    fn measure(&mut self, now_us: u64) {
        let mut by: BTreeMap<MemberId, Vec<MemberId>> = BTreeMap::new();
        for (one, other) in self.pairs() {
            // The one with less to do measures. Only the root cannot be measured to.
            let load = |member| by.get(&member).map_or(0, Vec::len);
            let (from, to) = match one == 0 || load(one) <= load(other) {
                true => (one, other),
                false => (other, one),
            };
            let targets = by.entry(from).or_default();
            if targets.len() < MAX_TARGETS {
                targets.push(to);
            }
        }
        self.timeout_us = Some(now_us + ROUND_TIMEOUT_US);
        self.round += 1;
        let round = self.round;
        let asked = by.iter().map(|(by, targets)| SurveyAction::Measure { by: *by, round, targets: targets.clone() });
        self.actions.extend(asked);
        self.asked = by;
        self.end_round_if_answered(now_us);
    }

    /// The pairs of a round, each once, with the lower number first.
    fn pairs(&mut self) -> BTreeSet<(MemberId, MemberId)> {
        let present: Vec<MemberId> = self.present.iter().copied().collect();
        let pair = |one: MemberId, other: MemberId| (one.min(other), one.max(other));
        let mut pairs = BTreeSet::new();
        if present.len() <= MAX_ALL_PAIRS {
            for (at, one) in present.iter().enumerate() {
                pairs.extend(present[at + 1..].iter().map(|other| (*one, *other)));
            }
            return pairs;
        }
        // Fragments that a round has found are put together by the next one.
        let shape = self.candidate.as_ref().unwrap_or(&self.clusters);
        let mut clusters: BTreeMap<u32, Vec<MemberId>> = BTreeMap::new();
        for member in &present {
            clusters.entry(shape[*member as usize]).or_default().push(*member);
        }
        let clusters: Vec<Vec<MemberId>> = clusters.into_values().collect();
        for hosts in &clusters {
            for (at, host) in hosts.iter().enumerate() {
                pairs.extend(NEXT_IN_CLUSTER.map(|step| pair(*host, hosts[(at + step) % hosts.len()])));
            }
        }
        let rng = &mut self.rng;
        let mut any = |hosts: &[MemberId]| hosts[rng.below(hosts.len() as u64) as usize];
        let all = clusters.len() * (clusters.len() - 1) / 2;
        if all <= present.len() * CLUSTER_PAIRS_A_HOST {
            for (at, one) in clusters.iter().enumerate() {
                for other in &clusters[at + 1..] {
                    pairs.insert(pair(any(one), any(other)));
                }
            }
        }
        for host in &present {
            for _ in 0..AT_RANDOM {
                pairs.insert(pair(*host, any(&present)));
            }
        }
        pairs.retain(|(one, other)| one != other);
        pairs
    }

    fn end_round(&mut self, now_us: u64) {
        self.asked.clear();
        let hosts = self.clusters.len();
        let mut edges: Vec<_> = self.rtts_us.iter().map(|((one, other), rtt_us)| (*rtt_us, *one, *other)).collect();
        let is_quiet = matches!(self.stage, Stage::Quiet(_));
        let root_is_alone = self.clusters.iter().filter(|cluster| **cluster == self.clusters[0]).count() == 1;
        if !is_quiet && !root_is_alone && self.present.len() <= MAX_ALL_PAIRS {
            subtract_port_of_root(&mut edges);
        }
        let least_us = if is_quiet { RTT_STEP_US } else { LOADED_STEP_US };
        let found = grouping::split(hosts, &edges, RTT_STEP, least_us).map(|found| self.keep_unmeasured(found));
        let found = found.map(|found| if is_quiet { found } else { self.without_mere_joins(found) });
        let decided = found.as_ref() == Some(&self.clusters);
        match found.filter(|_| !decided) {
            // Two rounds in a row have found the same.
            Some(found) if self.candidate.as_ref() == Some(&found) => {
                self.candidate = None;
                (self.each_is_alone, self.is_by_queues) = (false, !is_quiet);
                self.clusters.clone_from(&found);
                self.actions.push_back(SurveyAction::Regroup(found));
            }
            other => self.candidate = other,
        }
        match self.stage {
            // Round trips on idle links have confirmed the clusters.
            Stage::Quiet(_) if decided => (self.stage, self.timeout_us) = (Stage::Over, None),
            Stage::Quiet(round) if self.candidate.is_some() && round + 1 < QUIET_ROUNDS => {
                self.stage = Stage::Quiet(round + 1);
                self.measure(now_us);
            }
            Stage::Quiet(_) if self.actions.iter().any(|a| matches!(a, SurveyAction::Regroup(_))) => {
                (self.stage, self.timeout_us) = (Stage::Over, None);
            }
            Stage::Quiet(_) => self.wait(now_us, 0),
            Stage::Loaded(round, _) => self.wait(now_us, round + 1),
            Stage::Over => {}
        }
    }

    /// What a round beside the broadcast has found, as far as queues can show it.
    fn without_mere_joins(&self, found: Vec<u32>) -> Vec<u32> {
        let split = split_by_both(&self.clusters, &found);
        let splits_some = split != self.clusters && !self.is_by_queues;
        if self.each_is_alone || splits_some { found } else { split }
    }

    /// Waits for a round beside the broadcast.
    fn wait(&mut self, now_us: u64, round: usize) {
        self.candidate = self.candidate.take().filter(|_| round > 0);
        match LOADED_AFTER_US.get(round) {
            Some(after_us) => (self.stage, self.timeout_us) = (Stage::Loaded(round, false), Some(now_us + after_us)),
            None => (self.stage, self.timeout_us) = (Stage::Over, None),
        }
    }

    /// Hosts without a measurement stay with the hosts that were thought to be near.
    fn keep_unmeasured(&self, found: Vec<u32>) -> Vec<u32> {
        let measured: BTreeSet<MemberId> = self.rtts_us.keys().flat_map(|(one, other)| [*one, *other]).collect();
        let mut moved: BTreeMap<u32, u32> = BTreeMap::new();
        for member in &measured {
            moved.entry(self.clusters[*member as usize]).or_insert(found[*member as usize]);
        }
        let of = (0..).zip(&found).map(|(member, alone)| match measured.contains(&member) {
            true => *alone,
            false => moved.get(&self.clusters[member as usize]).copied().unwrap_or(*alone),
        });
        numbered(&of.collect::<Vec<_>>())
    }
}

/// Subtracts what the root's own port adds to all of the root's round trips.
fn subtract_port_of_root(edges: &mut [(f64, MemberId, MemberId)]) {
    let of_root = || edges.iter().filter(|(_, one, other)| *one.min(other) == 0).map(|(rtt_us, ..)| *rtt_us);
    let least_us = of_root().fold(f64::INFINITY, f64::min);
    for (rtt_us, ..) in edges.iter_mut().filter(|(_, one, other)| *one.min(other) == 0) {
        *rtt_us = (*rtt_us - least_us).max(LOADED_LEAST_US);
    }
}

/// Clusters of hosts that both groupings put together.
fn split_by_both(one: &[u32], other: &[u32]) -> Vec<u32> {
    numbered(&one.iter().zip(other).collect::<Vec<_>>())
}

/// The same clusters, numbered from 0 in the order of the first host of each.
fn numbered<Cluster: Ord>(clusters: &[Cluster]) -> Vec<u32> {
    let mut numbers = BTreeMap::new();
    let number = |cluster| {
        let next = numbers.len() as u32;
        *numbers.entry(cluster).or_insert(next)
    };
    clusters.iter().map(number).collect()
}
