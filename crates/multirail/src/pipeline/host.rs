//! One host's part of a group: makes its copies' edges, and runs the copies.

use super::copy::{self, Make, Outcome};
use super::counters::{Counters, Counts};
use super::edges::{Edge, Input, Output, Peer};
use super::filter::{Place, Unit};
use super::site::Site;
use crate::Config;
use crate::error::{Error, Result};
use crate::transport::connect::{Arrival, Dial, connect};
use crate::transport::{Bell, Connection, Transport, memory};
use multirail_proto::pipeline::keep::Kept;
use multirail_proto::pipeline::{Dealer, Graph, Stream};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Edges that are dialled at the same time.
const DIALS_AT_ONCE: usize = 16;
/// By then the other hosts' edges must be here.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a copy that is told to end may take before it is left to itself.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// For [`Copy::given_up`]: every unit of work.
const ALL_UNITS: u32 = u32::MAX;

/// A group, as all its hosts know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layout {
    pub run: RunId,
    pub graph: Graph,
    /// The first one coordinates; it listens nowhere, and dials instead.
    pub hosts: Vec<HostEntry>,
    /// Of each stream.
    pub transports: Vec<Option<Transport>>,
    pub chunk_bytes: u64,
    pub limit_bytes: u64,
}

/// A host of a group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HostEntry {
    pub name: String,
    /// Its server, with the port.
    pub address: String,
}

/// A group's name: nobody else can guess it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct RunId(pub [u8; 16]);

/// An edge of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EdgeId {
    pub(super) run: RunId,
    stream: u32,
    from_copy: u32,
    to_copy: u32,
}

/// One host's part, before it runs.
pub(super) struct Host {
    layout: Arc<Layout>,
    me: u32,
    /// Of the copies that are here, by filter and copy.
    bells: HashMap<(usize, usize), Arc<Bell>>,
    arrived: Mutex<HashMap<EdgeId, Box<dyn Connection>>>,
    came: Condvar,
}

/// One host's part, at work. Dropping it ends its copies.
#[derive(Debug)]
pub(super) struct Running {
    copies: Vec<Copy>,
}

#[derive(Debug)]
struct Copy {
    filter: usize,
    copy: usize,
    units: Option<Sender<Arc<Unit>>>,
    given_up: Arc<AtomicU32>,
    bell: Arc<Bell>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

/// The ends of edges that are here: of the one that sends, and of the other.
type Made = HashMap<(EdgeId, bool), Box<dyn Connection>>;

/// Told of a copy's end of a unit of work: filter, copy, unit; and what it has done so far.
pub(super) type Tell = Arc<dyn Fn(usize, usize, u32, Outcome, Counts) + Send + Sync>;

impl Layout {
    /// Producers keep the buffers of a stream whose consumer is stateless and not all on the producer's host.
    fn keeps(&self, stream: &Stream, from_copy: usize) -> bool {
        let (from, to) = (&self.graph.filters()[stream.from], &self.graph.filters()[stream.to]);
        to.stateless && to.hosts.iter().any(|h| *h != from.hosts[from_copy])
    }

    fn peer(&self, filter: usize, copy: usize) -> Peer {
        let spec = &self.graph.filters()[filter];
        let host = self.host_name(spec.hosts[copy]).to_owned();
        Peer { filter: spec.name.clone(), copy, host }
    }

    pub fn host_name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("?", |h| &h.name)
    }

    /// Every edge of a stream, with the hosts of its ends.
    fn edges(&self, stream: usize) -> impl Iterator<Item = (EdgeId, u32, u32)> {
        let (from, to) = (self.graph.streams()[stream].from, self.graph.streams()[stream].to);
        let (from, to) = (&self.graph.filters()[from].hosts, &self.graph.filters()[to].hosts);
        from.iter().enumerate().flat_map(move |(f, from_host)| {
            to.iter().enumerate().map(move |(t, to_host)| {
                let id = EdgeId { run: self.run, stream: stream as u32, from_copy: f as u32, to_copy: t as u32 };
                (id, *from_host, *to_host)
            })
        })
    }
}

/// The one of an edge's hosts that dials: the coordinator, for it listens nowhere; else the one that sends.
fn dials(from_host: u32, to_host: u32) -> (u32, u32) {
    if to_host == 0 { (to_host, from_host) } else { (from_host, to_host) }
}

impl Host {
    pub fn new(layout: Arc<Layout>, me: u32) -> Result<Arc<Self>> {
        let mut bells = HashMap::new();
        for (f, filter) in layout.graph.filters().iter().enumerate() {
            for (c, _) in filter.hosts.iter().enumerate().filter(|(_, h)| **h == me) {
                bells.insert((f, c), Bell::new().map_err(Error::io("making a bell"))?);
            }
        }
        Ok(Arc::new(Self { layout, me, bells, arrived: Mutex::default(), came: Condvar::new() }))
    }

    /// An edge that another host dialled. It blocks, for some seconds at most.
    pub fn arrive(&self, id: EdgeId, arrival: Arrival) -> Result<()> {
        let expected = match self.layout.graph.streams().get(id.stream as usize) {
            None => None,
            Some(_) => self
                .layout
                .edges(id.stream as usize)
                .find(|(edge, from, to)| *edge == id && from != to && dials(*from, *to).1 == self.me),
        };
        let Some((_, from_host, _)) = expected else {
            return arrival.refuse("this group has no such edge here");
        };
        let connection = arrival.accept(self.bell(id, from_host == self.me), self.layout.limit_bytes)?;
        self.arrived().insert(id, connection);
        self.came.notify_all();
        Ok(())
    }

    /// Makes all edges of this host's copies and starts them. It blocks until the other hosts' edges are here.
    pub fn join(&self, config: &Config, makes: &[Make], tell: &Tell) -> Result<Running, String> {
        let mut made = self.connect_all(config)?;
        let mut running = Running { copies: Vec::new() };
        for (&(filter, copy), bell) in &self.bells {
            let given_up = Arc::new(AtomicU32::new(0));
            let counters = Arc::new(Counters::default());
            let mut site = Site::new(bell.clone(), counters.clone(), given_up.clone());
            self.fill(&mut site, filter, copy, &mut made)?;
            let spec = &self.layout.graph.filters()[filter];
            let place = Place {
                filter: spec.name.clone(),
                copy,
                copies: spec.hosts.len(),
                host: self.layout.host_name(self.me).to_owned(),
                chunk_bytes: self.layout.chunk_bytes,
                limit_bytes: self.layout.limit_bytes,
                outputs: site.outputs.len(),
            };
            let (units, next) = mpsc::channel();
            let (make, tell) = (makes[filter].clone(), tell.clone());
            let counted = counters.clone();
            let thread = std::thread::Builder::new().name(format!("{}.{copy}", spec.name)).spawn(move || {
                let tell = |unit, outcome| tell(filter, copy, unit, outcome, counted.now());
                copy::run(&place, &make, site, &next, tell);
            });
            let thread = Some(thread.map_err(|e| format!("starting a thread: {e}"))?);
            let (units, bell) = (Some(units), bell.clone());
            running.copies.push(Copy { filter, copy, units, given_up, bell, counters, thread });
        }
        running.copies.sort_by_key(|c| (c.filter, c.copy));
        Ok(running)
    }

    /// All edges with an end here: both ends of those within.
    fn connect_all(&self, config: &Config) -> Result<Made, String> {
        let mut made = Made::new();
        let (mut to_dial, mut awaited) = (Vec::new(), Vec::new());
        for stream in 0..self.layout.graph.streams().len() {
            for (id, from, to) in self.layout.edges(stream) {
                match (from == self.me, to == self.me) {
                    (true, true) => {
                        let (a, b) = memory::pair(self.bell(id, true), self.bell(id, false));
                        made.insert((id, true), Box::new(a));
                        made.insert((id, false), Box::new(b));
                    }
                    (false, false) => {}
                    (sends, _) if dials(from, to).0 == self.me => to_dial.push((id, sends, dials(from, to).1)),
                    (sends, _) => awaited.push((id, sends)),
                }
            }
        }
        for some in to_dial.chunks(DIALS_AT_ONCE) {
            let dialled: Vec<_> = std::thread::scope(|scope| {
                let dial =
                    |(id, sends, peer): &(EdgeId, bool, u32)| (*id, *sends, self.dial(*id, *sends, *peer, config));
                let threads: Vec<_> = some.iter().map(|edge| scope.spawn(move || dial(edge))).collect();
                threads.into_iter().filter_map(|t| t.join().ok()).collect()
            });
            for (id, sends, connection) in dialled {
                made.insert((id, sends), connection?);
            }
        }
        let until = Instant::now() + ARRIVAL_TIMEOUT;
        for (id, sends) in awaited {
            made.insert((id, sends), self.await_edge(id, until)?);
        }
        Ok(made)
    }

    fn dial(&self, id: EdgeId, sends: bool, peer: u32, config: &Config) -> Result<Box<dyn Connection>, String> {
        let host = &self.layout.hosts[peer as usize];
        let edge = crate::service::Edge::Pipeline(id);
        let dial = Dial {
            host: &host.address,
            config,
            edge: &postcard::to_allocvec(&edge).map_err(|e| e.to_string())?,
            transport: self.layout.transports[id.stream as usize],
            bell: self.bell(id, sends),
            limit_bytes: self.layout.limit_bytes,
        };
        connect(dial).map_err(|e| format!("an edge to host {}: {e}", host.name))
    }

    fn await_edge(&self, id: EdgeId, until: Instant) -> Result<Box<dyn Connection>, String> {
        let mut arrived = self.arrived();
        loop {
            if let Some(connection) = arrived.remove(&id) {
                return Ok(connection);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let stream = &self.layout.graph.streams()[id.stream as usize];
                let (from, to) = (
                    self.layout.peer(stream.from, id.from_copy as usize),
                    self.layout.peer(stream.to, id.to_copy as usize),
                );
                return Err(format!(
                    "the edge from copy {} of {:?} on {} to copy {} of {:?} on {} did not come up within {} s",
                    from.copy,
                    from.filter,
                    from.host,
                    to.copy,
                    to.filter,
                    to.host,
                    ARRIVAL_TIMEOUT.as_secs()
                ));
            }
            arrived = self.came.wait_timeout(arrived, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives a copy its edges.
    fn fill(&self, site: &mut Site, filter: usize, copy: usize, made: &mut Made) -> Result<(), String> {
        let layout = &self.layout;
        let mut take = |id, sends| made.remove(&(id, sends)).ok_or("an edge is missing".to_owned());
        for (place, stream_number) in layout.graph.inputs(filter).enumerate() {
            let stream = &layout.graph.streams()[stream_number];
            let from = &layout.graph.filters()[stream.from];
            for (id, _, _) in layout.edges(stream_number).filter(|(id, _, _)| id.to_copy as usize == copy) {
                let peer = layout.peer(stream.from, id.from_copy as usize);
                let mut input = Input::new(place, peer, stream.window, take(id, false)?);
                input.keeps = layout.keeps(stream, id.from_copy as usize);
                // Whoever feeds it gives its buffers to its other copies.
                let fed: Vec<_> = layout.graph.inputs(stream.from).collect();
                input.is_spare = from.stateless && from.hosts.len() > 1 && !fed.is_empty();
                site.inputs.push(input);
            }
        }
        for stream_number in layout.graph.outputs(filter) {
            let stream = &layout.graph.streams()[stream_number];
            let consumers = layout.graph.filters()[stream.to].hosts.len();
            let mut edges = Vec::new();
            for (id, _, _) in layout.edges(stream_number).filter(|(id, _, _)| id.from_copy as usize == copy) {
                let peer = layout.peer(stream.to, id.to_copy as usize);
                edges.push(Edge { peer, connection: take(id, true)?, kept: Kept::default(), gone: false });
            }
            let dealer = Dealer::new(stream.schedule, stream.window, consumers, copy);
            site.outputs.push(Output { dealer, edges, keeps: layout.keeps(stream, copy), forgiven: 0 });
        }
        Ok(())
    }

    /// The bell of the copy at one end of an edge; it is here.
    fn bell(&self, id: EdgeId, of_sender: bool) -> &Arc<Bell> {
        let stream = &self.layout.graph.streams()[id.stream as usize];
        let end = if of_sender { (stream.from, id.from_copy) } else { (stream.to, id.to_copy) };
        &self.bells[&(end.0, end.1 as usize)]
    }

    fn arrived(&self) -> MutexGuard<'_, HashMap<EdgeId, Box<dyn Connection>>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Has every copy work on a unit, after those before it.
    pub fn begin(&self, unit: &Arc<Unit>) {
        for copy in &self.copies {
            // A copy's thread that is gone has told so.
            let _ = copy.units.as_ref().map(|units| units.send(unit.clone()));
        }
    }

    /// Has every copy give a unit up.
    pub fn give_up(&self, unit: u32) {
        for copy in &self.copies {
            copy.given_up.store(unit, Ordering::Release);
            copy.bell.ring();
        }
    }

    /// What the copies have done: filter, copy, counts.
    pub fn counts(&self) -> Vec<(usize, usize, Counts)> {
        self.copies.iter().map(|c| (c.filter, c.copy, c.counters.now())).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.give_up(ALL_UNITS);
        self.copies.iter_mut().for_each(|c| drop(c.units.take()));
        let until = Instant::now() + END_TIMEOUT;
        for copy in &mut self.copies {
            let Some(thread) = copy.thread.take() else { continue };
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("me", &self.me).finish_non_exhaustive()
    }
}
