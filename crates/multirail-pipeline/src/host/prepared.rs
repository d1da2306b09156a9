//! One host's part of a group before it runs: makes the edges of its copies.

use super::layout::{EdgeId, Layout, PlacedEdge};
use super::messages::PIPELINE_EDGE;
use super::running::{CopyHandle, OnEnded, RunningHost};
use crate::edge::connect::{Arrival, Dial, connect};
use crate::edge::{Connection, Notifier, memory};
use crate::runtime::{CopyInfo, CopyRuntime, MakeFilter, PeerEdge, Worker};
use multirail_net::Config;
use multirail_net::error::{Error, Result};
use multirail_net::sync::{lock, wait_timeout};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Edges that are dialled at the same time.
const DIALS_AT_ONCE: usize = 16;
/// How long the other hosts have to dial their edges.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 20 });

/// One host's part of a group, before it runs.
pub(crate) struct PreparedHost {
    layout: Arc<Layout>,
    me: u32,
    /// Of the copies on this host, by filter and copy.
    notifiers: HashMap<(usize, usize), Arc<Notifier>>,
    arrived: Mutex<HashMap<EdgeId, Box<dyn Connection>>>,
    has_arrived: Condvar,
}

/// The ends of edges on this host, by edge and whether it is the producer's end.
type EdgeEnds = HashMap<(EdgeId, bool), Box<dyn Connection>>;

impl PreparedHost {
    /// The part of host `me`.
    pub(crate) fn new(layout: Arc<Layout>, me: u32) -> Result<Arc<Self>> {
        let mut notifiers = HashMap::new();
        for (f, filter) in layout.graph.filters().iter().enumerate() {
            for (c, _) in filter.hosts.iter().enumerate().filter(|(_, h)| **h == me) {
                notifiers.insert((f, c), Notifier::new().map_err(Error::io("creating a notifier"))?);
            }
        }
        Ok(Arc::new(Self { layout, me, notifiers, arrived: Mutex::default(), has_arrived: Condvar::new() }))
    }

    /// Accepts an edge that another host has dialled. It blocks for some seconds at most.
    pub(crate) fn accept(&self, id: EdgeId, arrival: Arrival) -> Result<()> {
        let is_expected = |edge: &PlacedEdge| edge.from_host != edge.to_host && edge.dialer_and_acceptor().1 == self.me;
        let Some(edge) = self.layout.find_edge(id).filter(is_expected) else {
            return arrival.refuse("this group has no such edge on this host");
        };
        let notifier = self.notifier(id, edge.from_host == self.me);
        let connection = arrival.accept(notifier, self.layout.limit_bytes, self.layout.host_timeout)?;
        lock(&self.arrived).insert(id, connection);
        self.has_arrived.notify_all();
        Ok(())
    }

    /// Makes all edges of this host's copies and starts the copies. It blocks until the other
    /// hosts' edges have arrived.
    pub(crate) fn join(
        &self,
        config: &Config,
        makers: &[MakeFilter],
        on_ended: &OnEnded,
    ) -> Result<RunningHost, String> {
        let config = config.clone().give_up_after(self.layout.host_timeout);
        let mut ends = self.connect_all(&config)?;
        let mut running = RunningHost { copies: Vec::new() };
        for (&(filter, copy), notifier) in &self.notifiers {
            let aborted_unit = Arc::new(AtomicU32::new(0));
            let runtime = self.runtime(filter, copy, aborted_unit.clone(), &mut ends)?;
            let info = self.copy_info(filter, copy, runtime.outputs());
            let name = format!("{}.{copy}", info.filter);
            let worker = Worker::new(info, makers[filter].clone(), runtime);
            let (units, next) = mpsc::channel();
            let (counters, on_ended) = (worker.counters(), on_ended.clone());
            let counted = counters.clone();
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                worker.run(&next, |unit, outcome| on_ended(filter, copy, unit, outcome, counted.snapshot()));
            });
            let thread = Some(thread.map_err(|e| format!("starting a thread: {e}"))?);
            let (units, notifier) = (Some(units), notifier.clone());
            running.copies.push(CopyHandle { filter, copy, units, aborted_unit, notifier, counters, thread });
        }
        running.copies.sort_by_key(|c| (c.filter, c.copy));
        Ok(running)
    }

    /// What the copies of a filter on this host are told: for fuzzing.
    pub(crate) fn copies_of(&self, filter: usize) -> Vec<CopyInfo> {
        let outputs = self.layout.graph.streams().iter().filter(|stream| stream.from == filter).count();
        let copies = self.notifiers.keys().filter(|(of, _)| *of == filter);
        copies.map(|&(_, copy)| self.copy_info(filter, copy, outputs)).collect()
    }

    fn copy_info(&self, filter: usize, copy: usize, outputs: usize) -> CopyInfo {
        let node = &self.layout.graph.filters()[filter];
        CopyInfo {
            filter: node.name.clone(),
            copy,
            copies: node.hosts.len(),
            host: self.layout.host_name(self.me).to_owned(),
            chunk_bytes: self.layout.chunk_bytes,
            limit_bytes: self.layout.limit_bytes,
            outputs,
        }
    }

    /// The runtime of a copy, which takes the copy's ends of edges.
    fn runtime(
        &self,
        filter: usize,
        copy: usize,
        aborted_unit: Arc<AtomicU32>,
        ends: &mut EdgeEnds,
    ) -> Result<CopyRuntime, String> {
        let mut take = |id, is_producer, filter: usize, copy: u32| {
            let connection = ends.remove(&(id, is_producer)).ok_or("an edge is missing")?;
            Ok::<_, String>(PeerEdge::new(self.layout.peer(filter, copy as usize), connection))
        };
        let mut inputs = Vec::new();
        for (id, from, config) in self.layout.inputs(filter, copy) {
            inputs.push((config, take(id, false, from, id.from_copy)?));
        }
        let mut outputs = Vec::new();
        for (to, config, ids) in self.layout.outputs(filter, copy) {
            let edges = ids.into_iter().map(|id| take(id, true, to, id.to_copy));
            outputs.push((config, edges.collect::<Result<_, _>>()?));
        }
        Ok(CopyRuntime::new(copy, self.notifiers[&(filter, copy)].clone(), aborted_unit, inputs, outputs))
    }

    /// All ends of edges on this host; both ends of the edges within it.
    fn connect_all(&self, config: &Config) -> Result<EdgeEnds, String> {
        let mut ends = EdgeEnds::new();
        let (mut to_dial, mut awaited) = (Vec::new(), Vec::new());
        for stream in 0..self.layout.graph.streams().len() {
            for edge in self.layout.edges(stream) {
                let (id, is_producer) = (edge.id, edge.from_host == self.me);
                match (is_producer, edge.to_host == self.me) {
                    (true, true) => {
                        let (from, to) = memory::pair(self.notifier(id, true), self.notifier(id, false));
                        ends.insert((id, true), Box::new(from));
                        ends.insert((id, false), Box::new(to));
                    }
                    (false, false) => {}
                    _ => match edge.dialer_and_acceptor() {
                        (dialer, acceptor) if dialer == self.me => to_dial.push((id, is_producer, acceptor)),
                        _ => awaited.push((id, is_producer)),
                    },
                }
            }
        }
        for some in to_dial.chunks(DIALS_AT_ONCE) {
            let dialled: Vec<_> = std::thread::scope(|scope| {
                let dial = |&(id, is_producer, host): &(EdgeId, bool, u32)| {
                    ((id, is_producer), self.dial(id, is_producer, host, config))
                };
                let threads: Vec<_> = some.iter().map(|edge| scope.spawn(move || dial(edge))).collect();
                threads.into_iter().filter_map(|t| t.join().ok()).collect()
            });
            for (end, connection) in dialled {
                ends.insert(end, connection?);
            }
        }
        let until = Instant::now() + ARRIVAL_TIMEOUT;
        for (id, is_producer) in awaited {
            ends.insert((id, is_producer), self.await_edge(id, until)?);
        }
        Ok(ends)
    }

    fn dial(&self, id: EdgeId, is_producer: bool, host: u32, config: &Config) -> Result<Box<dyn Connection>, String> {
        let host = &self.layout.hosts[host as usize];
        let dial = Dial {
            host: &host.address,
            config,
            protocol: PIPELINE_EDGE,
            edge: &postcard::to_allocvec(&id).map_err(|e| e.to_string())?,
            transport: self.layout.transports[id.stream as usize],
            notifier: self.notifier(id, is_producer),
            limit_bytes: self.layout.limit_bytes,
        };
        connect(dial).map_err(|e| format!("an edge to host {}: {e}", host.name))
    }

    fn await_edge(&self, id: EdgeId, until: Instant) -> Result<Box<dyn Connection>, String> {
        let mut arrived = lock(&self.arrived);
        loop {
            if let Some(connection) = arrived.remove(&id) {
                return Ok(connection);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.missing(id));
            }
            arrived = wait_timeout(&self.has_arrived, arrived, left);
        }
    }

    fn missing(&self, id: EdgeId) -> String {
        let stream = &self.layout.graph.streams()[id.stream as usize];
        let from = self.layout.peer(stream.from, id.from_copy as usize);
        let to = self.layout.peer(stream.to, id.to_copy as usize);
        format!(
            "the edge from copy {} of {:?} on {} to copy {} of {:?} on {} did not come up within {} s",
            from.copy,
            from.filter,
            from.host,
            to.copy,
            to.filter,
            to.host,
            ARRIVAL_TIMEOUT.as_secs()
        )
    }

    /// The notifier of the copy at one end of an edge. The copy must be on this host.
    fn notifier(&self, id: EdgeId, of_producer: bool) -> &Arc<Notifier> {
        let stream = &self.layout.graph.streams()[id.stream as usize];
        let (filter, copy) = if of_producer { (stream.from, id.from_copy) } else { (stream.to, id.to_copy) };
        &self.notifiers[&(filter, copy as usize)]
    }
}

impl fmt::Debug for PreparedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedHost").field("me", &self.me).finish_non_exhaustive()
    }
}
