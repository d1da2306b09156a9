//! The methods with 10 to 10,000 hosts in 2 to 100 clusters, simulated.
//!
//! `multicast_scale [METHOD...] [HOSTSxCLUSTERS[-KIND]...]` (default: all; without `--release` it takes hours) prints
//! a line of JSON for each run: the run, the time of the last host, the bound, the bytes between clusters, control
//! messages, peers and memory of a host, and the cost of the simulation.
//!
//! Hosts have gigabit ports. A full mesh of links of 2 to 10 MB/s with a round trip of 20 ms joins the clusters. With
//! many clusters the ports are the limit. Kinds are `equal` (the default), `unequal` (cluster sizes grow from the
//! root's to the last one's, which is as many times as large as there are clusters), and `access` (each host has a
//! limit of 5 to 50 MB/s towards other clusters, each way).
//!
//! The memory of a host is what its node has allocated, as a counting allocator sees it.

use multirail_proto::multicast::plan::bound::bound_bytes_s;
use multirail_proto::multicast::{Input, MemberId, Message, Method, Node, Nodes, Output, PieceSet, Pieces};
use multirail_proto::rng::Rng;
use multirail_sim::multicast::{End, GIGABIT_BYTES_S, Outcome, Scenario, run};
use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

const TOTAL_BYTES: u64 = 256 << 20;
const SEED: u64 = 4;
/// A flat tree of 10,000 hosts takes six hours of simulated time.
const MAX_US: u64 = 12 * 3_600_000_000;

const SIZES: [&str; 14] = [
    "10x2",
    "30x3",
    "100x4",
    "300x4",
    "1000x4",
    "1000x10",
    "1000x10-unequal",
    "1000x10-access",
    "1000x100",
    "3000x10",
    "3000x30",
    "10000x4",
    "10000x10",
    "10000x100",
];

/// What differs between hosts or clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Equal,
    Unequal,
    Access,
}

impl Kind {
    const ALL: [(&str, Self); 3] = [("equal", Self::Equal), ("unequal", Self::Unequal), ("access", Self::Access)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// A size of a group.
#[derive(Debug, Clone, Copy)]
struct Size {
    hosts: u32,
    clusters: u32,
    kind: Kind,
}

impl Size {
    /// From `HOSTSxCLUSTERS` or `HOSTSxCLUSTERS-KIND`.
    fn parse(text: &str) -> Option<Self> {
        let (size, kind) = text.split_once('-').unwrap_or((text, "equal"));
        let (hosts, clusters) = size.split_once('x')?;
        let (hosts, clusters) = (hosts.parse().ok()?, clusters.parse().ok()?);
        let kind = Kind::ALL.iter().find(|(name, _)| *name == kind)?.1;
        (clusters > 0 && clusters <= hosts).then_some(Self { hosts, clusters, kind })
    }

    /// Pieces as `bcast` cuts them. With 3,000 hosts and more they are larger, since the time of a run grows with
    /// their number.
    fn pieces(self) -> Pieces {
        let pieces = Pieces::of(TOTAL_BYTES);
        let times = if self.hosts >= 10_000 { 4 } else { 1 + u32::from(self.hosts >= 3000) };
        Pieces { piece_bytes: pieces.piece_bytes * times, ..pieces }
    }

    /// The hosts of each cluster, the root's first.
    fn clusters(self) -> Vec<u32> {
        let (hosts, clusters) = (self.hosts, self.clusters);
        let weight = |c: u32| if self.kind == Kind::Unequal { c + 1 } else { 1 };
        let all: u32 = (0..clusters).map(weight).sum();
        let mut sizes: Vec<u32> = (0..clusters).map(|c| (hosts * weight(c) / all).max(1)).collect();
        let rest = hosts.saturating_sub(sizes.iter().sum());
        (0..rest).for_each(|i| sizes[(clusters - 1 - i % clusters) as usize] += 1);
        sizes
    }

    fn scenario(self) -> Result<Scenario, Box<dyn Error>> {
        let clusters = self.clusters as usize;
        let mut rng = Rng::new(SEED);
        let mut wan_bytes_s = vec![vec![0.0; clusters]; clusters];
        for (from, to) in (0..clusters).flat_map(|from| (0..from).map(move |to| (from, to))) {
            let rate = 2e6 + 8e6 * rng.unit();
            (wan_bytes_s[from][to], wan_bytes_s[to][from]) = (rate, rate);
        }
        let mut scenario = Scenario::new(&self.clusters(), wan_bytes_s, self.pieces())?;
        if self.kind == Kind::Access {
            for host in &mut scenario.hosts {
                let rate = 5e6 + 45e6 * rng.unit();
                (host.wan_out_bytes_s, host.wan_in_bytes_s) = (rate, rate);
            }
        }
        scenario.max_us = MAX_US;
        Ok(scenario)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run_all(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("multicast_scale: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run_all(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (mut methods, mut sizes) = (Vec::new(), Vec::new());
    for argument in arguments {
        match Size::parse(argument) {
            Some(size) => sizes.push(size),
            None => methods.push(argument.parse::<Method>()?),
        }
    }
    if methods.is_empty() {
        methods.extend(Method::ALL);
    }
    if sizes.is_empty() {
        sizes.extend(SIZES.iter().filter_map(|size| Size::parse(size)));
    }
    for size in sizes {
        let scenario = size.scenario()?;
        for method in &methods {
            let began = Instant::now();
            let (members, bandwidths) = (scenario.members.clone(), scenario.bandwidths());
            match Nodes::new(*method, members, scenario.pieces, SEED, Some(&bandwidths)) {
                Ok(nodes) => {
                    let memory = Arc::new(Mutex::new(vec![Memory::default(); scenario.members.count()]));
                    let outcome = run(&scenario, |me, held| Box::new(Measured::new(&nodes, me, held, &memory)));
                    print(
                        size,
                        &scenario,
                        *method,
                        &outcome,
                        &memory.lock().unwrap_or_else(PoisonError::into_inner),
                        began.elapsed().as_secs_f64(),
                    );
                }
                Err(problem) => eprintln!("{size:?}, {method}: {problem}"),
            }
        }
    }
    Ok(())
}

/// The time that no method can beat: by the links, the limits of hosts and their delay, and by the ports of the root
/// and of a receiver.
fn bound_s(scenario: &Scenario) -> f64 {
    let delay_s = if scenario.wan_bytes_s.len() > 1 { scenario.wan_delay_us as f64 / 1e6 } else { 0.0 };
    let flow_bytes_s = bound_bytes_s(&scenario.members, &scenario.bandwidths());
    (TOTAL_BYTES as f64 / flow_bytes_s + delay_s).max(TOTAL_BYTES as f64 / GIGABIT_BYTES_S)
}

fn print(size: Size, scenario: &Scenario, method: Method, outcome: &Outcome, memory: &[Memory], run_s: f64) {
    let (complete, _) = outcome.counts(&scenario.members);
    let seconds = outcome.makespan_us().map_or("null".to_owned(), |us| format!("{:.6}", us as f64 / 1e6));
    let end = match outcome.end {
        End::Done => "done",
        End::Stalled => "stalled",
        End::TimeLimit => "time limit",
        End::StepLimit => "step limit",
    };
    let count = memory.len().max(1) as f64;
    println!(
        "{{\"method\": \"{method}\", \"hosts\": {}, \"clusters\": {}, \"kind\": \"{}\", \"bytes\": {}, \"pieces\": {}, \
         \"seed\": {SEED}, \"end\": \"{end}\", \"complete\": {complete}, \"seconds\": {seconds}, \"bound_s\": {:.6}, \
         \"wan_copies\": {:.4}, \"control_messages\": {}, \"control_bytes\": {}, \"piece_bytes\": {}, \
         \"duplicate_pieces\": {}, \"repeated_entries\": {}, \"peers_mean\": {:.1}, \"peers_max\": {}, \
         \"memory_mean\": {:.0}, \"memory_max\": {}, \"steps\": {}, \"run_s\": {run_s:.2}}}",
        size.hosts,
        size.clusters,
        size.kind.name(),
        scenario.pieces.total_bytes,
        scenario.pieces.count(),
        bound_s(scenario),
        outcome.wan_bytes() as f64 / scenario.pieces.total_bytes as f64,
        outcome.control_messages,
        outcome.control_bytes,
        outcome.arrived_bytes,
        outcome.duplicate_pieces,
        outcome.repeated_entries,
        outcome.peers.iter().map(|p| f64::from(*p)).sum::<f64>() / count,
        outcome.peers.iter().max().unwrap_or(&0),
        memory.iter().map(|m| m.most_bytes as f64).sum::<f64>() / count,
        memory.iter().map(|m| m.most_bytes).max().unwrap_or(0),
        outcome.steps,
    );
}

/// The bytes that a node has allocated.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    now_bytes: i64,
    most_bytes: i64,
}

/// A node whose allocations are counted. What goes in or out with a message is not the node's.
#[derive(Debug)]
struct Measured {
    node: Box<dyn Node>,
    me: MemberId,
    memory: Arc<Mutex<Vec<Memory>>>,
}

impl Measured {
    fn new(nodes: &Nodes, me: MemberId, held: PieceSet, memory: &Arc<Mutex<Vec<Memory>>>) -> Self {
        let before = ALLOCATED_BYTES.load(Ordering::Relaxed);
        let node = nodes.node(me, held);
        let measured = Self { node, me, memory: memory.clone() };
        measured.count(ALLOCATED_BYTES.load(Ordering::Relaxed) - before);
        measured
    }

    fn count(&self, bytes: i64) {
        let memory = &mut self.memory.lock().unwrap_or_else(PoisonError::into_inner)[self.me as usize];
        memory.now_bytes += bytes;
        memory.most_bytes = memory.most_bytes.max(memory.now_bytes);
    }
}

impl Node for Measured {
    fn handle(&mut self, now_us: u64, input: Input) {
        let brought = if let Input::Message(_, message) = &input { list_bytes(message) } else { 0 };
        let before = ALLOCATED_BYTES.load(Ordering::Relaxed);
        self.node.handle(now_us, input);
        self.count(ALLOCATED_BYTES.load(Ordering::Relaxed) - before + brought);
    }

    fn poll(&mut self) -> Option<Output> {
        let output = self.node.poll();
        if let Some(Output::Send(_, message)) = &output {
            self.count(-list_bytes(message));
        }
        output
    }

    fn wake_at_us(&self) -> Option<u64> {
        self.node.wake_at_us()
    }

    fn held(&self) -> &PieceSet {
        self.node.held()
    }
}

/// The memory of a message's list.
fn list_bytes(message: &Message) -> i64 {
    match message {
        Message::Bitfield(bits) => bits.capacity() as i64,
        Message::Have(list)
        | Message::Request(list)
        | Message::Cancel(list)
        | Message::Fetching(list)
        | Message::Take(list)
        | Message::Watch(list) => 4 * list.capacity() as i64,
        _ => 0,
    }
}

/// The bytes that the program has allocated.
static ALLOCATED_BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}
