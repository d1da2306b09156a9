//! A running group, in the process that started it.

use super::group_state::{Event, GroupState};
use super::remote_host::RemoteHost;
use crate::error::{PipelineError, Result};
use crate::host::{FilterKind, Layout, OnEnded, PreparedHost, RunningHost, ToHost};
use crate::runtime::{Counts, MakeFilter, QueuedUnit, UnitOfWork};
use multirail_net::Config;
use multirail_proto::pipeline::progress::Phase;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long [`RunningGroup::wait`] waits at a time.
const WAIT: Duration = Duration::from_secs(3600);

/// A running group. Dropping it ends its filters on all hosts.
#[derive(Debug)]
pub struct RunningGroup {
    state: Arc<GroupState>,
    local: Option<RunningHost>,
    remote: Vec<RemoteHost>,
    next_unit: u32,
}

/// What one copy of a filter has done so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStatus {
    /// The filter's name.
    pub filter: String,
    /// The copy's number, from 0.
    pub copy: usize,
    /// The name of the copy's host.
    pub host: String,
    /// The copy's counters since the group was started.
    pub counts: Counts,
}

impl RunningGroup {
    /// Makes all filters and edges: on this host by `makers`, on others by `kinds`. Both are in the
    /// order of the graph's filters.
    pub(crate) fn start(
        config: &Config,
        layout: Layout,
        local_name: &str,
        makers: &[MakeFilter],
        kinds: &[FilterKind],
    ) -> Result<Self> {
        let layout = Arc::new(layout);
        let state = Arc::new(GroupState::new(layout.clone()));
        let mut running = Self { state: state.clone(), local: None, remote: Vec::new(), next_unit: 1 };
        for number in state.remote_hosts() {
            running.remote.push(RemoteHost::start(number, &state, config.clone())?);
        }
        for remote in &running.remote {
            remote.send(ToHost::Prepare { layout: (*layout).clone(), me: remote.number, kinds: kinds.to_vec() });
        }
        state.wait_for_phase(Phase::Prepared)?;
        running.send_all(&ToHost::Join);
        let host = PreparedHost::new(layout, 0).map_err(|e| PipelineError::start(local_name, e))?;
        let reports = state.clone();
        let on_ended: OnEnded =
            Arc::new(move |filter, copy, unit, outcome, _| reports.on_local_copy_ended(filter, copy, unit, outcome));
        match host.join(config, makers, &on_ended) {
            Ok(local) => {
                state.wait_for_phase(Phase::Joined)?;
                running.local = Some(local);
                Ok(running)
            }
            // If another host has given a reason, that is the cause, and the local one a
            // consequence.
            Err(cause) => Err(state.refusal().unwrap_or_else(|| PipelineError::start(local_name, cause))),
        }
    }

    /// Gives the group a unit of work and waits for its end, however long it takes.
    ///
    /// # Errors
    ///
    /// The first failure of a copy or host. The group can do further units of work unless the
    /// failure persists.
    pub fn run(&mut self, query: &[u8]) -> Result<()> {
        let unit = self.begin(query);
        self.wait(unit)
    }

    /// Queues a unit of work and returns its number, for [`RunningGroup::wait`].
    ///
    /// The query is passed to all filters. Copies begin the unit when they have ended the one
    /// before.
    pub fn begin(&mut self, query: &[u8]) -> u32 {
        let unit = UnitOfWork { number: self.next_unit, query: query.to_owned() };
        self.next_unit += 1;
        self.state.begin_unit(unit.number);
        self.send_all(&ToHost::Unit { number: unit.number, query: unit.query.clone() });
        let number = unit.number;
        if let Some(local) = &self.local {
            local.begin(&QueuedUnit::new(unit, None));
        }
        number
    }

    /// Waits until every filter has ended a unit of work. The result is reported once.
    ///
    /// # Errors
    ///
    /// As for [`RunningGroup::run`]; [`PipelineError::NoUnit`] for an unknown number.
    pub fn wait(&mut self, unit: u32) -> Result<()> {
        loop {
            if let Some(ended) = self.wait_for(unit, WAIT) {
                return ended;
            }
        }
    }

    /// As [`RunningGroup::wait`], but returns `None` if the unit of work has not ended after
    /// `longest`.
    pub fn wait_for(&mut self, unit: u32, longest: Duration) -> Option<Result<()>> {
        let until = Instant::now() + longest;
        loop {
            match self.state.next_event(unit, until) {
                Event::Ended(ended) => return Some(ended),
                Event::Abort(units) => units.into_iter().for_each(|unit| self.abort(unit)),
                Event::TimedOut => return None,
            }
        }
    }

    /// Stops a unit of work before it is done. Its end must still be waited for.
    pub fn abort(&self, unit: u32) {
        self.send_all(&ToHost::Abort { unit });
        if let Some(local) = &self.local {
            local.abort(unit);
        }
    }

    /// What each copy has done, by filter and copy. Other hosts report every 250 ms.
    pub fn status(&self) -> Vec<CopyStatus> {
        let local = self.local.iter().flat_map(RunningHost::counts);
        let mut all: Vec<_> = local.chain(self.state.counts()).collect();
        all.sort_by_key(|(filter, copy, _)| (*filter, *copy));
        let status = all.into_iter().map(|(filter, copy, counts)| {
            let peer = self.state.layout.peer(filter, copy);
            CopyStatus { filter: peer.filter, copy, host: peer.host, counts }
        });
        status.collect()
    }

    fn send_all(&self, message: &ToHost) {
        self.remote.iter().for_each(|remote| remote.send(message.clone()));
    }
}
