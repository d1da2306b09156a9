//! Groups of filters: putting one together, starting it, and giving it units of work.

use super::copy::{Make, Outcome};
use super::counters::Counts;
use super::error::{PipelineError, Result};
use super::filter::{Failure, Filter, Place, StreamOptions, Unit};
use super::host::{Host, HostEntry, Layout, RunId, Running as Local};
use super::registry::Filters;
use super::remote::{self, FromHost, Kind, ToHost};
use crate::Config;
use crate::service;
use crate::transport::DEFAULT_LIMIT_BYTES;
use multirail_proto::pipeline::{self as proto, Graph};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long a host may be without a working rail before it counts as gone, where nothing else is said.
const HOST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all hosts have for making their edges.
const START_TIMEOUT: Duration = Duration::from_secs(40);
/// A source cuts its data into such chunks where nothing else is said.
pub const DEFAULT_CHUNK_BYTES: u64 = 64 << 10;
/// This process's name among the hosts.
pub const LOCAL: &str = "local";

/// A group of filters that is being put together.
pub struct Group {
    config: Config,
    filters: Vec<Spec>,
    streams: Vec<(String, String, StreamOptions)>,
    hosts: Vec<HostEntry>,
    chunk_bytes: u64,
    limit_bytes: u64,
}

/// A filter of a [`Group`] that is being put together.
pub struct Spec {
    name: String,
    copies: usize,
    hosts: Vec<String>,
    stateless: bool,
    made: Made,
}

enum Made {
    Here(Make),
    ByKind { kind: String, parameters: Value, known: Filters },
}

impl Spec {
    /// So many transparent copies; default 1. They are given to the filter's hosts in turn.
    pub fn copies(&mut self, copies: usize) -> &mut Self {
        self.copies = copies;
        self
    }

    /// The hosts that its copies are on, by name; default: this process.
    pub fn on(&mut self, hosts: &[&str]) -> &mut Self {
        self.hosts = hosts.iter().map(|h| (*h).to_owned()).collect();
        self
    }

    /// What it makes of a buffer depends on nothing but that buffer, so if a copy's host dies, another copy may do it. The price: the
    /// producer keeps a copy of each buffer until it is done, and output waits for a round trip.
    pub fn stateless(&mut self) -> &mut Self {
        self.stateless = true;
        self
    }
}

impl Group {
    /// An empty one. `config` has the token and the rails for other hosts.
    pub fn new(config: Config) -> Self {
        let hosts = vec![HostEntry { name: LOCAL.to_owned(), address: String::new() }];
        let (filters, streams) = (Vec::new(), Vec::new());
        let config = Config { give_up_after: HOST_TIMEOUT, ..config };
        Self { config, filters, streams, hosts, chunk_bytes: DEFAULT_CHUNK_BYTES, limit_bytes: DEFAULT_LIMIT_BYTES }
    }

    /// Another host, by the address of its server.
    pub fn host(&mut self, name: &str, address: &str) -> &mut Self {
        self.hosts.push(HostEntry { name: name.to_owned(), address: address.to_owned() });
        self
    }

    /// Adds a filter that this process makes; all its copies are here.
    pub fn filter<F: Filter + 'static>(
        &mut self,
        name: &str,
        make: impl Fn(&Place) -> F + Send + Sync + 'static,
    ) -> &mut Spec {
        let make: Make = Arc::new(move |place| -> Result<Box<dyn Filter>, Failure> { Ok(Box::new(make(place))) });
        self.add(name, Made::Here(make))
    }

    /// Adds a filter that its hosts make by its kind: this process from `known`.
    pub fn filter_of_kind(&mut self, name: &str, kind: &str, parameters: Value, known: &Filters) -> &mut Spec {
        self.add(name, Made::ByKind { kind: kind.to_owned(), parameters, known: known.clone() })
    }

    fn add(&mut self, name: &str, made: Made) -> &mut Spec {
        let at = self.filters.len();
        self.filters.push(Spec { name: name.to_owned(), copies: 1, hosts: Vec::new(), stateless: false, made });
        &mut self.filters[at]
    }

    /// Joins two filters by a stream.
    pub fn stream(&mut self, from: &str, to: &str) -> &mut Self {
        self.stream_with(from, to, StreamOptions::default())
    }

    /// Joins two filters by a stream that shall work like this.
    pub fn stream_with(&mut self, from: &str, to: &str, options: StreamOptions) -> &mut Self {
        self.streams.push((from.to_owned(), to.to_owned(), options));
        self
    }

    /// How long a host may be without a working rail before it counts as gone; default 5 s. A unit of work that can go on without
    /// it ends that much later.
    pub fn host_timeout(&mut self, longest: Duration) -> &mut Self {
        self.config.give_up_after = longest;
        self
    }

    /// What sources cut their data into; default [`DEFAULT_CHUNK_BYTES`].
    pub fn chunk_bytes(&mut self, bytes: u64) -> &mut Self {
        self.chunk_bytes = bytes.max(1);
        self
    }

    /// No buffer is larger; default 64 MiB. A host's memory holds at most the window's buffers of each edge.
    pub fn limit_bytes(&mut self, bytes: u64) -> &mut Self {
        self.limit_bytes = bytes;
        self
    }

    /// The group as a graph, and the names of the hosts by its numbers.
    pub fn graph(&self) -> Result<(Graph, Vec<String>)> {
        let names = |list: &mut dyn Iterator<Item = &str>| list.map(str::to_owned).collect::<Vec<_>>();
        let find = |what, name: &str, known: Vec<String>| {
            let found = known.iter().position(|n| n == name);
            found.ok_or_else(|| PipelineError::Unknown { what, name: name.to_owned(), known })
        };
        let hosts = || names(&mut self.hosts.iter().map(|h| h.name.as_str()));
        let filters = || names(&mut self.filters.iter().map(|f| f.name.as_str()));
        let mut placed = Vec::new();
        for spec in &self.filters {
            let on = spec.hosts.iter().map(|h| find("host", h, hosts()));
            let mut on = on.collect::<Result<Vec<_>>>()?;
            if on.is_empty() {
                on.push(0);
            }
            let copies = (0..spec.copies.min(proto::graph::MAX_COPIES + 1)).map(|c| on[c % on.len()] as u32).collect();
            placed.push(proto::Filter { name: spec.name.clone(), hosts: copies, stateless: spec.stateless });
        }
        let mut streams = Vec::new();
        for (from, to, options) in &self.streams {
            let (from, to) = (find("filter", from, filters())?, find("filter", to, filters())?);
            streams.push(proto::Stream { from, to, schedule: options.schedule, window: options.window });
        }
        Ok((Graph::new(placed, streams)?, hosts()))
    }

    /// Makes all filters and edges, on all hosts. It blocks, for some seconds at most.
    pub fn start(&self) -> Result<Running> {
        let (graph, _) = self.graph()?;
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|e| start_failed(LOCAL, e))?;
        let layout = Layout {
            run: RunId(run),
            graph,
            hosts: self.hosts.clone(),
            transports: self.streams.iter().map(|(_, _, o)| o.transport).collect(),
            chunk_bytes: self.chunk_bytes,
            limit_bytes: self.limit_bytes,
        };
        let (makes, kinds) = self.makes(&layout)?;
        let layout = Arc::new(layout);
        let shared = Arc::new(Shared::new(layout.clone()));
        let mut running = Running { shared: shared.clone(), local: None, remote: Vec::new(), next: 1 };
        for me in 1..layout.hosts.len() as u32 {
            let used = layout.graph.filters().iter().any(|f| f.hosts.contains(&me));
            if used {
                running.remote.push(Remote::start(me, &shared, self.config.clone())?);
            }
        }
        for remote in &running.remote {
            remote.tell(ToHost::Prepare { layout: (*layout).clone(), me: remote.me, kinds: kinds.clone() });
        }
        let until = Instant::now() + START_TIMEOUT;
        shared.all_hosts(&running.remote, until, |h| h.prepared)?;
        for remote in &running.remote {
            remote.tell(ToHost::Join);
        }
        let host = Host::new(layout, 0).map_err(|e| start_failed(LOCAL, e))?;
        let hear = shared.clone();
        let tell = Arc::new(move |filter, copy, unit, outcome, _| hear.ended(filter, copy, unit, outcome));
        let local = host.join(&self.config, &makes, &(tell as super::host::Tell));
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
        running.local = Some(local.map_err(|e| start_failed(LOCAL, e))?);
        Ok(running)
    }

    /// What this process makes, and what the others are told.
    fn makes(&self, layout: &Layout) -> Result<(Vec<Make>, Vec<Kind>)> {
        let (mut makes, mut kinds) = (Vec::<Make>::new(), Vec::new());
        for (spec, filter) in self.filters.iter().zip(layout.graph.filters()) {
            let away = filter.hosts.iter().find(|h| **h != 0).map(|h| layout.host_name(*h));
            let here = filter.hosts.contains(&0);
            match (&spec.made, away) {
                (Made::Here(_), Some(host)) => {
                    let cause = format!("filter {:?} is this process's own; give it a kind that hosts know", spec.name);
                    return Err(start_failed(host, cause));
                }
                (Made::Here(make), None) => makes.push(make.clone()),
                (Made::ByKind { kind, parameters, known }, _) if here => {
                    makes.push(known.make(kind, parameters.clone())?)
                }
                (Made::ByKind { .. }, _) => makes.push(Arc::new(|_| Err("this filter has no copy here".into()))),
            }
            kinds.push(match &spec.made {
                Made::Here(_) => Kind { kind: String::new(), parameters: "null".to_owned() },
                Made::ByKind { kind, parameters, .. } => {
                    Kind { kind: kind.clone(), parameters: parameters.to_string() }
                }
            });
        }
        Ok((makes, kinds))
    }
}

const LATE: &str = "it did not answer in time";

fn start_failed(host: &str, cause: impl ToString) -> PipelineError {
    PipelineError::Start { host: host.to_owned(), cause: cause.to_string() }
}

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

/// What the coordinator knows.
#[derive(Debug)]
struct Shared {
    layout: Arc<Layout>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Of hosts beyond this process, by number.
    hosts: BTreeMap<u32, HostState>,
    units: BTreeMap<u32, UnitState>,
    /// Failed, and not everybody was told.
    give_up: Vec<u32>,
}

#[derive(Debug, Default)]
struct HostState {
    prepared: bool,
    joined: bool,
    gone: Option<String>,
    counts: Vec<(usize, usize, Counts)>,
}

#[derive(Debug)]
struct UnitState {
    /// Copies that have not ended it.
    open: BTreeSet<(usize, usize)>,
    failure: Option<PipelineError>,
}

enum Step {
    Ended(Result<()>),
    GiveUp(Vec<u32>),
    Late,
}

impl Shared {
    fn new(layout: Arc<Layout>) -> Self {
        Self { layout, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all hosts are as far.
    fn all_hosts(&self, remote: &[Remote], until: Instant, far: impl Fn(&HostState) -> bool) -> Result<()> {
        let mut state = self.lock();
        loop {
            let none = HostState::default();
            let host = |r: &Remote| state.hosts.get(&r.me).unwrap_or(&none);
            if let Some((remote, why)) = remote.iter().find_map(|r| Some((r, host(r).gone.clone()?))) {
                return Err(start_failed(self.layout.host_name(remote.me), why));
            }
            let Some(late) = remote.iter().find(|r| !far(host(r))) else { return Ok(()) };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(start_failed(self.layout.host_name(late.me), LATE));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn begin(&self, unit: u32) {
        let copies = self.layout.graph.filters().iter().enumerate();
        let open = copies.flat_map(|(f, filter)| (0..filter.hosts.len()).map(move |c| (f, c))).collect();
        let mut state = self.lock();
        state.units.insert(unit, UnitState { open, failure: None });
        let gone: Vec<_> = state.hosts.iter().filter_map(|(h, s)| Some((*h, s.gone.clone()?))).collect();
        for (host, why) in gone {
            self.count_out(&mut state, host, &why);
        }
    }

    fn ended(&self, filter: usize, copy: usize, number: u32, outcome: Outcome) {
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

    fn hear(&self, host: u32, told: FromHost) {
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
    fn gone(&self, host: u32, why: &str) {
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

    fn step(&self, number: u32, until: Instant) -> Step {
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

/// The thread that speaks to a host.
#[derive(Debug)]
struct Remote {
    me: u32,
    orders: Option<mpsc::UnboundedSender<ToHost>>,
    thread: Option<JoinHandle<()>>,
}

impl Remote {
    fn start(me: u32, shared: &Arc<Shared>, config: Config) -> Result<Self> {
        let (orders, next) = mpsc::unbounded_channel();
        let shared = shared.clone();
        let name = shared.layout.host_name(me).to_owned();
        let thread = std::thread::Builder::new().name(format!("to {name}")).spawn(move || {
            let address = shared.layout.hosts[me as usize].address.clone();
            let hear = shared.clone();
            let ended = service::block_on(remote::command(&address, config, next, move |told| hear.hear(me, told)));
            let why = ended.err().map_or("the pipeline was ended".to_owned(), |e| e.to_string());
            shared.gone(me, &why);
        });
        let thread = Some(thread.map_err(|e| start_failed(&name, e))?);
        Ok(Self { me, orders: Some(orders), thread })
    }

    fn tell(&self, order: ToHost) {
        if let Some(orders) = &self.orders {
            // Its thread ends when the host is gone, and has told so.
            let _ = orders.send(order);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.filters.iter().map(|s| &s.name).collect();
        f.debug_struct("Group").field("filters", &names).finish_non_exhaustive()
    }
}
