//! What is known of the hosts and of the units of work, and who waits for it.

use super::remote::Remote;
use crate::pipeline::copy::Outcome;
use crate::pipeline::counters::Counts;
use crate::pipeline::error::{PipelineError, Result};
use crate::pipeline::host::Layout;
use crate::pipeline::remote::FromHost;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Why a host has failed that says nothing.
pub const LATE: &str = "it did not answer in time";

/// What the coordinator knows.
#[derive(Debug)]
pub struct Shared {
    pub layout: Arc<Layout>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub struct State {
    /// Of hosts beyond this process, by number.
    pub hosts: BTreeMap<u32, HostState>,
    units: BTreeMap<u32, UnitState>,
    /// Failed, and not everybody was told.
    give_up: Vec<u32>,
}

#[derive(Debug, Default)]
pub struct HostState {
    pub prepared: bool,
    pub joined: bool,
    gone: Option<String>,
    pub counts: Vec<(usize, usize, Counts)>,
}

#[derive(Debug)]
struct UnitState {
    /// Copies that have not ended it.
    open: BTreeSet<(usize, usize)>,
    failure: Option<PipelineError>,
}

pub enum Step {
    Ended(Result<()>),
    GiveUp(Vec<u32>),
    Late,
}

impl Shared {
    pub fn new(layout: Arc<Layout>) -> Self {
        Self { layout, state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all hosts are as far.
    pub fn all_hosts(&self, remote: &[Remote], until: Instant, far: impl Fn(&HostState) -> bool) -> Result<()> {
        let mut state = self.lock();
        loop {
            let none = HostState::default();
            let host = |r: &Remote| state.hosts.get(&r.me).unwrap_or(&none);
            if let Some((remote, why)) = remote.iter().find_map(|r| Some((r, host(r).gone.clone()?))) {
                return Err(PipelineError::start(self.layout.host_name(remote.me), why));
            }
            let Some(late) = remote.iter().find(|r| !far(host(r))) else { return Ok(()) };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(PipelineError::start(self.layout.host_name(late.me), LATE));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A unit of work begins, on all copies.
    pub fn begin(&self, unit: u32) {
        let copies = self.layout.graph.filters().iter().enumerate();
        let open = copies.flat_map(|(f, filter)| (0..filter.hosts.len()).map(move |c| (f, c))).collect();
        let mut state = self.lock();
        state.units.insert(unit, UnitState { open, failure: None });
        let gone: Vec<_> = state.hosts.iter().filter_map(|(h, s)| Some((*h, s.gone.clone()?))).collect();
        for (host, why) in gone {
            self.count_out(&mut state, host, &why);
        }
    }

    /// A copy has ended a unit of work.
    pub fn ended(&self, filter: usize, copy: usize, number: u32, outcome: Outcome) {
        let mut state = self.lock();
        let Some(unit) = state.units.get_mut(&number) else { return };
        unit.open.remove(&(filter, copy));
        if let Outcome::Failed(cause) = outcome
            && unit.failure.is_none()
            && let Some(spec) = self.layout.graph.filters().get(filter)
        {
            let host = spec.hosts.get(copy).map_or("?", |h| self.layout.host_name(*h)).to_owned();
            let filter = spec.name.clone();
            unit.failure = Some(PipelineError::Filter { unit: number, filter, copy, host, cause });
            state.give_up.push(number);
        }
        self.changed.notify_all();
    }

    /// What a host has told.
    pub fn hear(&self, host: u32, told: FromHost) {
        let mut state = self.lock();
        let known = state.hosts.entry(host).or_default();
        match told {
            FromHost::Prepared => known.prepared = true,
            FromHost::Joined => known.joined = true,
            FromHost::Refused(why) => known.gone = Some(why),
            FromHost::Counts(counts) => {
                known.counts = counts.into_iter().map(|(f, c, n)| (f as usize, c as usize, n)).collect();
                return;
            }
            FromHost::Ended { filter, copy, unit, outcome, counts } => {
                let (filter, copy) = (filter as usize, copy as usize);
                let is_there = self.layout.graph.filters().get(filter).and_then(|f| f.hosts.get(copy)) == Some(&host);
                if is_there {
                    match known.counts.iter_mut().find(|(f, c, _)| (*f, *c) == (filter, copy)) {
                        Some((_, _, before)) => *before = counts,
                        None => known.counts.push((filter, copy, counts)),
                    }
                    drop(state);
                    self.ended(filter, copy, unit, outcome.into());
                }
                return;
            }
        }
        self.changed.notify_all();
    }

    /// A host will tell no more.
    pub fn gone(&self, host: u32, why: &str) {
        let mut state = self.lock();
        let known = state.hosts.entry(host).or_default();
        let why = known.gone.get_or_insert_with(|| why.to_owned()).clone();
        self.count_out(&mut state, host, &why);
        self.changed.notify_all();
    }

    /// Nobody waits for a dead host's copies. A unit can do without them only if other copies can take their buffers.
    fn count_out(&self, state: &mut State, host: u32, why: &str) {
        let graph = &self.layout.graph;
        for (number, unit) in &mut state.units {
            let dead: Vec<_> =
                unit.open.iter().copied().filter(|(f, c)| graph.filters()[*f].hosts[*c] == host).collect();
            for (filter, copy) in dead {
                unit.open.remove(&(filter, copy));
                let spec = &graph.filters()[filter];
                let is_spare =
                    spec.stateless && spec.hosts.iter().any(|h| *h != host) && graph.inputs(filter).next().is_some();
                if !is_spare && unit.failure.is_none() {
                    let host = self.layout.host_name(host).to_owned();
                    unit.failure = Some(PipelineError::Host { unit: *number, host, cause: why.to_owned() });
                    state.give_up.push(*number);
                }
            }
        }
    }

    /// Waits for what comes next for whoever waits for a unit of work.
    pub fn step(&self, number: u32, until: Instant) -> Step {
        let mut state = self.lock();
        loop {
            if !state.give_up.is_empty() {
                return Step::GiveUp(std::mem::take(&mut state.give_up));
            }
            let Some(unit) = state.units.get(&number) else {
                return Step::Ended(Err(PipelineError::NoUnit(number)));
            };
            if unit.open.is_empty() {
                let ended = state.units.remove(&number).and_then(|u| u.failure);
                return Step::Ended(ended.map_or(Ok(()), Err));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Step::Late;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
