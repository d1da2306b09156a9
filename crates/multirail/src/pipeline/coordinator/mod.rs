//! A group at work, as the process that started it sees it: it starts the group on all its hosts, gives it units of work, and hears how
//! they end.

mod remote;
mod shared;

use super::copy::Make;
use super::counters::Counts;
use super::error::{PipelineError, Result};
use super::filter::Unit;
use super::group::LOCAL;
use super::host::{Host, Layout, Running as Local, Tell};
use super::remote::{Kind, ToHost};
use crate::Config;
use remote::Remote;
use shared::{LATE, Shared, Step};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long all hosts have for making their edges.
const START_TIMEOUT: Duration = Duration::from_secs(40);

/// A group at work. Dropping it ends its filters, on all hosts.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    local: Option<Local>,
    remote: Vec<Remote>,
    next: u32,
}

/// What one copy has done so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStatus {
    /// The filter.
    pub filter: String,
    /// Its copy.
    pub copy: usize,
    /// Where it is.
    pub host: String,
    /// Since the group was started.
    pub counts: Counts,
}

impl Running {
    /// Makes all filters and edges, on all hosts: here by `makes`, elsewhere by `kinds`.
    pub(super) fn start(config: &Config, layout: Layout, makes: &[Make], kinds: &[Kind]) -> Result<Self> {
        let layout = Arc::new(layout);
        let shared = Arc::new(Shared::new(layout.clone()));
        let mut running = Self { shared: shared.clone(), local: None, remote: Vec::new(), next: 1 };
        for me in 1..layout.hosts.len() as u32 {
            let used = layout.graph.filters().iter().any(|f| f.hosts.contains(&me));
            if used {
                running.remote.push(Remote::start(me, &shared, config.clone())?);
            }
        }
        for remote in &running.remote {
            remote.tell(ToHost::Prepare { layout: (*layout).clone(), me: remote.me, kinds: kinds.to_vec() });
        }
        let until = Instant::now() + START_TIMEOUT;
        shared.all_hosts(&running.remote, until, |h| h.prepared)?;
        for remote in &running.remote {
            remote.tell(ToHost::Join);
        }
        let host = Host::new(layout, 0).map_err(|e| PipelineError::start(LOCAL, e))?;
        let hear = shared.clone();
        let tell = Arc::new(move |filter, copy, unit, outcome, _| hear.ended(filter, copy, unit, outcome));
        let local = host.join(config, makes, &(tell as Tell));
        // Another host's reason is the better one: that it did not come up, say.
        shared.all_hosts(&running.remote, if local.is_ok() { until } else { Instant::now() }, |h| h.joined).or_else(
            |e| {
                if local.is_ok() || !matches!(&e, PipelineError::Start { cause, .. } if cause == LATE) {
                    Err(e)
                } else {
                    Ok(())
                }
            },
        )?;
        running.local = Some(local.map_err(|e| PipelineError::start(LOCAL, e))?);
        Ok(running)
    }

    /// Gives the group a unit of work and waits for its end.
    pub fn run(&mut self, query: &[u8]) -> Result<()> {
        let unit = self.begin(query);
        self.wait(unit)
    }

    /// Gives the group a unit of work, behind those that it has. Returns its number, for [`Running::wait`].
    pub fn begin(&mut self, query: &[u8]) -> u32 {
        let unit = Unit { number: self.next, query: query.to_owned() };
        self.next += 1;
        self.shared.begin(unit.number);
        for remote in &self.remote {
            remote.tell(ToHost::Unit { number: unit.number, query: unit.query.clone() });
        }
        if let Some(local) = &self.local {
            local.begin(&Arc::new(unit.clone()));
        }
        unit.number
    }

    /// Waits until every filter has ended a unit of work.
    pub fn wait(&mut self, unit: u32) -> Result<()> {
        loop {
            if let Some(ended) = self.wait_for(unit, Duration::from_secs(3600)) {
                return ended;
            }
        }
    }

    /// As [`Running::wait`], for so long. `None`: it goes on.
    pub fn wait_for(&mut self, unit: u32, longest: Duration) -> Option<Result<()>> {
        let until = Instant::now() + longest;
        loop {
            let step = self.shared.step(unit, until);
            match step {
                Step::Ended(ended) => return Some(ended),
                Step::GiveUp(units) => units.into_iter().for_each(|unit| self.give_up(unit)),
                Step::Late => return None,
            }
        }
    }

    /// Ends a unit of work before it is done; it must still be waited for.
    pub fn give_up(&self, unit: u32) {
        for remote in &self.remote {
            remote.tell(ToHost::GiveUp { unit });
        }
        if let Some(local) = &self.local {
            local.give_up(unit);
        }
    }

    /// What the copies have done. Of other hosts it is some tenths of a second old.
    pub fn status(&self) -> Vec<CopyStatus> {
        let local = self.local.iter().flat_map(Local::counts);
        let state = self.shared.lock();
        let remote = state.hosts.values().flat_map(|h| h.counts.iter().copied());
        let graph = &self.shared.layout.graph;
        let mut all: Vec<_> = local
            .chain(remote)
            .filter_map(|(f, copy, counts)| Some((f, copy, counts, graph.filters().get(f)?)))
            .collect();
        all.sort_by_key(|(f, copy, ..)| (*f, *copy));
        all.into_iter()
            .map(|(_, copy, counts, filter)| {
                let host = filter.hosts.get(copy).map_or("?", |h| self.shared.layout.host_name(*h));
                CopyStatus { filter: filter.name.clone(), copy, host: host.to_owned(), counts }
            })
            .collect()
    }
}
