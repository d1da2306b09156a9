//! How far a group and its units of work are, as the coordinator sees it.
//!
//! Hosts are numbered as in the [`Graph`]; host 0 is the coordinator's own. Events come from the
//! hosts; [`Progress::startup`] and [`Progress::poll_unit`] say what follows from them.

use super::Graph;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Time from the start until all hosts must have made their edges.
pub(crate) const START_TIMEOUT_US: u64 = 40_000_000;

/// How one copy's part of a unit of work ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The copy has done its part.
    Done,
    /// The copy failed, for this reason.
    Failed(String),
    /// The copy stopped because another one failed.
    Aborted,
    /// The copy cannot continue, since another one is lost that it reads from or writes to.
    PeerLost {
        /// The name of the other copy's filter.
        filter: String,
        /// The number of the other copy.
        copy: u32,
        /// How the connection to it ended.
        cause: String,
    },
}

/// The phases of a start, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The host has accepted its part of the group.
    Prepared,
    /// The host has made its edges and started its copies.
    Joined,
}

/// Whether all hosts have reached a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Startup {
    /// All of them have.
    Complete,
    /// Some have not; the start fails at this time.
    Waiting {
        /// When to look again at the latest, in microseconds on the caller's clock.
        until_us: u64,
    },
    /// A host cannot take part.
    Failed {
        /// The host's number.
        host: u32,
        /// The host's reason; `None` if it did not answer in time.
        cause: Option<String>,
    },
}

/// Why a unit of work failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitFailure {
    /// A copy failed.
    Copy {
        /// The filter's place in the graph.
        filter: usize,
        /// The filter's copy.
        copy: usize,
        /// The copy's reason.
        cause: String,
    },
    /// A copy is lost without which others cannot continue.
    CopyLost {
        /// The filter's place in the graph.
        filter: usize,
        /// The filter's copy.
        copy: usize,
        /// How the connection to it ended.
        cause: String,
    },
    /// A host is lost whose copies cannot be replaced.
    HostLost {
        /// The host's number.
        host: u32,
        /// What was seen of it.
        cause: String,
    },
}

/// The state of a unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitStatus {
    /// There is no such unit, or its end was reported before.
    Unknown,
    /// Some copy has not ended it.
    Running,
    /// All copies have ended it. It is forgotten with this report.
    Ended(Result<(), UnitFailure>),
}

/// The coordinator's state of a group.
#[derive(Debug)]
pub struct Progress {
    graph: Graph,
    started_us: u64,
    hosts: BTreeMap<u32, RemoteHost>,
    units: BTreeMap<u32, Unit>,
    /// Units that have failed, and whose copies have not been told to stop.
    to_abort: Vec<u32>,
}

/// A host other than the coordinator's.
#[derive(Debug, Default)]
struct RemoteHost {
    reached: Option<Phase>,
    /// Why it takes no further part.
    lost: Option<String>,
}

#[derive(Debug)]
struct Unit {
    /// Copies that have not ended it: filter and copy.
    running: BTreeSet<(usize, usize)>,
    failure: Option<UnitFailure>,
}

impl Progress {
    /// A group that is started at `now_us`.
    pub fn new(graph: Graph, now_us: u64) -> Self {
        let used = graph.filters().iter().flat_map(|f| f.hosts.iter().copied()).filter(|h| *h != 0);
        let hosts = used.map(|host| (host, RemoteHost::default())).collect();
        Self { graph, started_us: now_us, hosts, units: BTreeMap::new(), to_abort: Vec::new() }
    }

    /// The hosts other than the coordinator's that have a copy of some filter.
    pub fn hosts(&self) -> impl Iterator<Item = u32> {
        self.hosts.keys().copied()
    }

    /// A host has reached a phase of the start.
    pub fn on_phase(&mut self, host: u32, phase: Phase) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.reached = host.reached.max(Some(phase));
        }
    }

    /// A host takes no further part: it refused, or the connection to it is lost. The first reason
    /// counts.
    ///
    /// A unit of work continues without the host if other copies can replace all of its copies.
    pub fn on_host_lost(&mut self, host: u32, cause: &str) {
        let Some(state) = self.hosts.get_mut(&host) else { return };
        let cause = state.lost.get_or_insert_with(|| cause.to_owned()).clone();
        let units: Vec<u32> = self.units.keys().copied().collect();
        units.into_iter().for_each(|unit| self.remove_host(unit, host, &cause));
    }

    /// Whether all hosts have reached a phase.
    pub fn startup(&self, phase: Phase, now_us: u64) -> Startup {
        if let Some((host, cause)) = self.hosts.iter().find_map(|(host, h)| Some((*host, h.lost.clone()?))) {
            return Startup::Failed { host, cause: Some(cause) };
        }
        let Some((host, _)) = self.hosts.iter().find(|(_, h)| h.reached < Some(phase)) else {
            return Startup::Complete;
        };
        let until_us = self.started_us + START_TIMEOUT_US;
        if now_us >= until_us {
            return Startup::Failed { host: *host, cause: None };
        }
        Startup::Waiting { until_us }
    }

    /// All copies begin a unit of work. Those of lost hosts are counted out at once.
    pub fn begin_unit(&mut self, number: u32) {
        let copies = self.graph.filters().iter().enumerate();
        let running = copies.flat_map(|(f, filter)| (0..filter.hosts.len()).map(move |c| (f, c))).collect();
        self.units.insert(number, Unit { running, failure: None });
        let lost: Vec<_> = self.hosts.iter().filter_map(|(host, h)| Some((*host, h.lost.clone()?))).collect();
        lost.into_iter().for_each(|(host, cause)| self.remove_host(number, host, &cause));
    }

    /// A copy has ended a unit of work. `host` is the host that says so; a report about another
    /// host's copy is ignored.
    pub fn on_copy_ended(&mut self, host: u32, filter: usize, copy: usize, number: u32, outcome: Outcome) {
        let is_its_own = self.graph.filters().get(filter).and_then(|f| f.hosts.get(copy)) == Some(&host);
        let Some(unit) = self.units.get_mut(&number).filter(|_| is_its_own) else { return };
        unit.running.remove(&(filter, copy));
        let failure = match outcome {
            Outcome::Done | Outcome::Aborted => return,
            Outcome::Failed(cause) => UnitFailure::Copy { filter, copy, cause },
            Outcome::PeerLost { filter: name, copy: lost, cause } => {
                let place = self.graph.filters().iter().position(|f| f.name == name && (lost as usize) < f.hosts.len());
                match place {
                    Some(place) => UnitFailure::CopyLost { filter: place, copy: lost as usize, cause },
                    // The host names a copy that does not exist.
                    None => UnitFailure::Copy { filter, copy, cause },
                }
            }
        };
        if unit.failure.is_none() {
            unit.failure = Some(failure);
            self.to_abort.push(number);
        }
    }

    /// Units of work that have failed since the last call. All hosts must be told to abort them.
    pub fn take_aborts(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.to_abort)
    }

    /// The state of a unit of work.
    pub fn poll_unit(&mut self, number: u32) -> UnitStatus {
        match self.units.get(&number) {
            None => UnitStatus::Unknown,
            Some(unit) if !unit.running.is_empty() => UnitStatus::Running,
            Some(_) => {
                let failure = self.units.remove(&number).and_then(|u| u.failure);
                UnitStatus::Ended(failure.map_or(Ok(()), Err))
            }
        }
    }

    /// Counts a lost host's copies out of a unit of work.
    fn remove_host(&mut self, number: u32, host: u32, cause: &str) {
        let Some(unit) = self.units.get_mut(&number) else { return };
        let filters = self.graph.filters();
        let dead: Vec<_> = unit.running.iter().copied().filter(|(f, c)| filters[*f].hosts[*c] == host).collect();
        for (filter, copy) in dead {
            unit.running.remove(&(filter, copy));
            let others = filters[filter].hosts.iter().any(|h| *h != host);
            if !(others && self.graph.is_replaceable(filter)) && unit.failure.is_none() {
                unit.failure = Some(UnitFailure::HostLost { host, cause: cause.to_owned() });
                self.to_abort.push(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{FilterNode, LogicalStream, Schedule};
    use proptest::prelude::*;

    /// Source here, stateless work on hosts 1 to 3, sink on `sink_host`.
    fn graph(sink_host: u32) -> Graph {
        let filter =
            |name: &str, hosts: &[u32], stateless| FilterNode { name: name.into(), hosts: hosts.to_vec(), stateless };
        let stream = |from, to| LogicalStream { from, to, schedule: Schedule::default(), window: 1 };
        let filters = vec![filter("a", &[0], false), filter("b", &[1, 2, 3], true), filter("c", &[sink_host], false)];
        Graph::new(filters, vec![stream(0, 1), stream(1, 2)]).unwrap()
    }

    #[test]
    fn a_lost_copy_is_told_from_the_one_that_misses_it() {
        for (name, lost, is_known) in [("b", 2, true), ("b", 3, false), ("d", 0, false)] {
            let mut progress = Progress::new(graph(0), 0);
            progress.begin_unit(0);
            let cause = "no power".to_owned();
            let outcome = Outcome::PeerLost { filter: name.to_owned(), copy: lost, cause: cause.clone() };
            progress.on_copy_ended(0, 2, 0, 0, outcome);
            assert_eq!(progress.take_aborts(), [0]);
            for (host, filter, copy) in [(0, 0, 0), (1, 1, 0), (2, 1, 1), (3, 1, 2)] {
                progress.on_copy_ended(host, filter, copy, 0, Outcome::Aborted);
            }
            let expected = match is_known {
                true => UnitFailure::CopyLost { filter: 1, copy: 2, cause },
                false => UnitFailure::Copy { filter: 2, copy: 0, cause },
            };
            assert_eq!(progress.poll_unit(0), UnitStatus::Ended(Err(expected)));
        }
    }

    #[test]
    fn a_start_waits_for_all_hosts_and_not_forever() {
        let mut progress = Progress::new(graph(0), 1000);
        let until_us = 1000 + START_TIMEOUT_US;
        for host in 1..=3 {
            assert_eq!(progress.startup(Phase::Prepared, 2000), Startup::Waiting { until_us });
            progress.on_phase(host, Phase::Prepared);
        }
        assert_eq!(progress.startup(Phase::Prepared, 2000), Startup::Complete);
        progress.on_phase(1, Phase::Joined);
        progress.on_phase(3, Phase::Joined);
        assert_eq!(progress.startup(Phase::Joined, until_us - 1), Startup::Waiting { until_us });
        assert_eq!(progress.startup(Phase::Joined, until_us), Startup::Failed { host: 2, cause: None });
        progress.on_host_lost(3, "no power");
        progress.on_host_lost(3, "closed");
        let cause = Some("no power".to_owned());
        assert_eq!(progress.startup(Phase::Joined, until_us), Startup::Failed { host: 3, cause });
    }

    #[test]
    fn reports_about_other_hosts_copies_are_ignored() {
        let mut progress = Progress::new(graph(0), 0);
        progress.begin_unit(1);
        progress.on_copy_ended(1, 1, 1, 1, Outcome::Failed("not mine".into()));
        progress.on_copy_ended(1, 7, 0, 1, Outcome::Done);
        progress.on_copy_ended(1, 1, 0, 2, Outcome::Done);
        assert_eq!((progress.take_aborts(), progress.poll_unit(1)), (vec![], UnitStatus::Running));
        assert_eq!(progress.poll_unit(2), UnitStatus::Unknown);
    }

    proptest! {
        /// Compared with the plain rule: a unit ends when every copy has ended or its host is lost,
        /// and fails if a copy failed or a lost host had a copy that cannot be replaced.
        #[test]
        fn a_unit_ends_when_every_copy_has(
            sink_host in 0u32..3, lost in prop::collection::vec(1u32..4, 0..3), failing in 0usize..8, order: prop::sample::Index,
        ) {
            let graph = graph(sink_host);
            let mut copies: Vec<_> =
                graph.filters().iter().enumerate().flat_map(|(f, n)| n.hosts.iter().enumerate().map(move |(c, h)| (f, c, *h))).collect();
            let start = order.index(copies.len());
            copies.rotate_left(start);
            let mut progress = Progress::new(graph, 0);
            progress.begin_unit(1);
            let mut fails = false;
            for (at, (filter, copy, host)) in copies.iter().copied().enumerate() {
                if let Some(host) = lost.get(at) {
                    // What is left of this host: its copies that have not ended.
                    let running = copies[at..].iter().filter(|c| c.2 == *host);
                    let gone = lost[..at].contains(host);
                    fails |= !gone && running.clone().any(|c| c.0 != 1);
                    progress.on_host_lost(*host, "gone");
                }
                if lost[..lost.len().min(at + 1)].contains(&host) {
                    continue;
                }
                let outcome = if at == failing { Outcome::Failed("x".into()) } else { Outcome::Done };
                fails |= at == failing;
                prop_assert_eq!(progress.poll_unit(1), UnitStatus::Running);
                progress.on_copy_ended(host, filter, copy, 1, outcome);
            }
            prop_assert_eq!(progress.take_aborts().len(), usize::from(fails));
            match progress.poll_unit(1) {
                UnitStatus::Ended(ended) => prop_assert_eq!(ended.is_err(), fails),
                other => prop_assert!(false, "{:?}", other),
            }
            prop_assert_eq!(progress.poll_unit(1), UnitStatus::Unknown);
        }
    }
}
