//! What the coordinator knows of its group, shared by the threads that learn of it and the one
//! that waits.

use crate::error::{PipelineError, Result};
use crate::host::{FromHost, Layout};
use crate::runtime::Counts;
use multirail_net::sync::{lock, wait_timeout};
use multirail_proto::pipeline::progress::{Outcome, Phase, Progress, Startup, UnitFailure, UnitStatus};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The shared state of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    pub layout: Arc<Layout>,
    /// Time 0 of [`Progress`].
    epoch: Instant,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    progress: Progress,
    /// Of hosts other than this one, by filter and copy.
    counts: BTreeMap<(usize, usize), Counts>,
}

/// What a thread that waits for a unit of work has to do.
pub(super) enum Event {
    Ended(Result<()>),
    /// Tell all hosts to abort these units.
    Abort(Vec<u32>),
    TimedOut,
}

impl GroupState {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        let progress = Progress::new(layout.graph.clone(), 0);
        let inner = Mutex::new(Inner { progress, counts: BTreeMap::new() });
        Self { layout, epoch: Instant::now(), inner, changed: Condvar::new() }
    }

    fn now_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    /// The hosts other than this one that have a copy of some filter.
    pub(super) fn remote_hosts(&self) -> Vec<u32> {
        lock(&self.inner).progress.hosts().collect()
    }

    /// The counters of the copies on other hosts, as last reported: filter, copy, counts.
    pub(super) fn counts(&self) -> Vec<(usize, usize, Counts)> {
        lock(&self.inner).counts.iter().map(|((filter, copy), counts)| (*filter, *copy, *counts)).collect()
    }

    /// Waits until all hosts have reached a phase.
    pub(super) fn wait_for_phase(&self, phase: Phase) -> Result<()> {
        let mut inner = lock(&self.inner);
        loop {
            let now_us = self.now_us();
            match inner.progress.startup(phase, now_us) {
                Startup::Complete => return Ok(()),
                Startup::Waiting { until_us } => inner = self.wait(inner, until_us - now_us),
                Startup::Failed { host, cause } => {
                    let cause = cause.unwrap_or_else(|| "it did not answer in time".to_owned());
                    return Err(PipelineError::start(self.layout.host_name(host), cause));
                }
            }
        }
    }

    /// Why a host cannot take part, if one has said so by now.
    pub(super) fn refusal(&self) -> Option<PipelineError> {
        match lock(&self.inner).progress.startup(Phase::Joined, self.now_us()) {
            Startup::Failed { host, cause: Some(cause) } => {
                Some(PipelineError::start(self.layout.host_name(host), cause))
            }
            _ => None,
        }
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>, longest_us: u64) -> MutexGuard<'a, Inner> {
        wait_timeout(&self.changed, inner, Duration::from_micros(longest_us))
    }

    /// A unit of work begins.
    pub(super) fn begin_unit(&self, unit: u32) {
        lock(&self.inner).progress.begin_unit(unit);
    }

    /// A copy on this host has ended a unit of work.
    pub(super) fn on_local_copy_ended(&self, filter: usize, copy: usize, unit: u32, outcome: Outcome) {
        lock(&self.inner).progress.on_copy_ended(0, filter, copy, unit, outcome);
        self.changed.notify_all();
    }

    /// A message from a host.
    pub(super) fn on_message(&self, host: u32, message: FromHost) {
        let mut inner = lock(&self.inner);
        let hosts_copy = |filter: usize, copy: usize| {
            self.layout.graph.filters().get(filter).and_then(|f| f.hosts.get(copy)) == Some(&host)
        };
        match message {
            FromHost::Prepared => inner.progress.on_phase(host, Phase::Prepared),
            FromHost::Joined => inner.progress.on_phase(host, Phase::Joined),
            FromHost::Refused(why) => inner.progress.on_host_lost(host, &why),
            FromHost::Counts(counts) => {
                let counts = counts.into_iter().map(|(f, c, counts)| ((f as usize, c as usize), counts));
                inner.counts.extend(counts.filter(|((f, c), _)| hosts_copy(*f, *c)));
                return;
            }
            FromHost::Ended { filter, copy, unit, outcome, counts } => {
                let (filter, copy) = (filter as usize, copy as usize);
                if hosts_copy(filter, copy) {
                    inner.counts.insert((filter, copy), counts);
                }
                inner.progress.on_copy_ended(host, filter, copy, unit, outcome);
            }
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// The connection to a host is lost.
    pub(super) fn on_host_lost(&self, host: u32, cause: &str) {
        lock(&self.inner).progress.on_host_lost(host, cause);
        self.changed.notify_all();
    }

    /// Waits for the next event that concerns the waiter for a unit of work.
    pub(super) fn next_event(&self, unit: u32, until: Instant) -> Event {
        let mut inner = lock(&self.inner);
        loop {
            let aborts = inner.progress.take_aborts();
            if !aborts.is_empty() {
                return Event::Abort(aborts);
            }
            match inner.progress.poll_unit(unit) {
                UnitStatus::Unknown => return Event::Ended(Err(PipelineError::NoUnit(unit))),
                UnitStatus::Ended(ended) => return Event::Ended(ended.map_err(|failure| self.error(unit, failure))),
                UnitStatus::Running => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Event::TimedOut;
            }
            inner = wait_timeout(&self.changed, inner, left);
        }
    }

    fn error(&self, unit: u32, failure: UnitFailure) -> PipelineError {
        match failure {
            UnitFailure::Copy { filter, copy, cause } => {
                let peer = self.layout.peer(filter, copy);
                PipelineError::Filter { unit, filter: peer.filter, copy, host: peer.host, cause }
            }
            UnitFailure::CopyLost { filter, copy, cause } => {
                let peer = self.layout.peer(filter, copy);
                PipelineError::CopyLost { unit, filter: peer.filter, copy, host: peer.host, cause }
            }
            UnitFailure::HostLost { host, cause } => {
                PipelineError::Host { unit, host: self.layout.host_name(host).to_owned(), cause }
            }
        }
    }
}
