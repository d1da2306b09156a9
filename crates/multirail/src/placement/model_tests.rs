//! The program's decisions (`bpf/decide.h`) against those of its model (`multirail_proto::placement`): the same packets through both, one by
//! one. `bpf/trace.bpf.c` runs the program's part on what a test says a packet is.

use super::layout::{self, Config, HostState, MacKey, Peer, PeerState, Port, PortState};
use super::test_run;
use aya::maps::{Array, HashMap};
use aya::programs::SchedClassifier;
use aya::{Btf, Ebpf, EbpfLoader};
use multirail_proto::placement::{self as model, Host, Look, MAX_PORTS, Mac, Mask, Packet, Policy, Stream, Why};
use proptest::prelude::*;
use std::os::fd::AsFd;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/trace.bpf.o"));
const NS_PER_KIB: u64 = 81_920; // 100 Mbit/s
const PEER: Mac = Mac([2, 0, 0, 0, 1, 0]);
const THRESHOLD_BYTES: u32 = 7_000;
/// More than there are slots.
const STREAMS: usize = 72;

// SAFETY: plain integers without padding, and any bytes are valid values.
unsafe impl aya::Pod for layout::Stream {}

/// `struct trace`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Trace {
    ethernet: [u8; 16],
    stream: u32,
    unused: u32,
    now_ns: u64,
    bytes: u32,
    hash2: u32,
    hash34: u32,
    is_tcp: u32,
    backlog: u32,
    in_flight: u32,
    unsent: u32,
    segments: u32,
    duplicates: u32,
    is_looked: u32,
    seen: u32,
    is_last: u32,
    queued: [u32; MAX_PORTS],
}

impl Trace {
    fn new(stream: usize, packet: &Packet) -> Self {
        let mut ethernet = [0; 16];
        ethernet[..6].copy_from_slice(&PEER.0);
        let queued = packet.look.unwrap_or_default().queued_bytes;
        Trace {
            ethernet,
            stream: stream as u32,
            unused: 0,
            now_ns: packet.now_ns,
            bytes: packet.bytes,
            hash2: packet.hash2,
            hash34: packet.hash34,
            is_tcp: packet.is_tcp.into(),
            backlog: packet.backlog_bytes,
            in_flight: packet.in_flight,
            unsent: packet.unsent_bytes,
            segments: packet.segments,
            duplicates: packet.duplicates,
            is_looked: packet.look.is_some().into(),
            seen: (0..MAX_PORTS).fold(0, |mask, port| mask | u32::from(queued[port].is_some()) << port),
            is_last: packet.is_last.into(),
            queued: queued.map(|bytes| bytes.unwrap_or(0)),
        }
    }
}

/// The program's part, with tables of its own.
struct Kernel {
    object: Ebpf,
}

impl Kernel {
    /// None, and why is printed, where this process may not load programs.
    fn new() -> Option<Self> {
        let loaded = Btf::from_sys_fs().map_err(|e| e.to_string()).and_then(|btf| {
            let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(|e| e.to_string())?;
            let program: &mut SchedClassifier =
                object.program_mut("trace").ok_or("no program")?.try_into().map_err(|_| "no classifier".to_owned())?;
            program.load().map_err(|e| format!("{e}: {:?}", std::error::Error::source(&e).map(ToString::to_string)))?;
            Ok(object)
        });
        // SAFETY: it only reads.
        let is_root = unsafe { libc::geteuid() } == 0;
        match loaded {
            Ok(object) => Some(Self { object }),
            // Root with a kernel that has BTF can; what it then refuses is a fault of the program.
            Err(why) if is_root && std::path::Path::new("/sys/kernel/btf/vmlinux").exists() => panic!("{why}"),
            Err(why) => {
                eprintln!("skipped: the program cannot be loaded here: {why}");
                None
            }
        }
    }

    /// As new, with these ports, and a peer with those.
    fn reset(&mut self, policy: Policy, ns_per_kib: &[u64], theirs: [u64; MAX_PORTS]) {
        for number in 0..MAX_PORTS {
            let mut table = Array::<_, PortState>::try_from(self.object.map_mut("port_states").unwrap()).unwrap();
            table.set(number as u32, PortState::default(), 0).unwrap();
        }
        let mut host = HostState::default();
        host.ns_per_kib[..ns_per_kib.len()].copy_from_slice(ns_per_kib);
        Array::<_, HostState>::try_from(self.object.map_mut("host_state").unwrap()).unwrap().set(0, host, 0).unwrap();
        let mut traced = Array::<_, layout::Stream>::try_from(self.object.map_mut("traced").unwrap()).unwrap();
        for stream in 0..STREAMS {
            traced.set(stream as u32, layout::Stream::default(), 0).unwrap();
        }
        let usable = Mask::first(ns_per_kib.len());
        let config = Config {
            policy: policy as u32,
            ports: ns_per_kib.len() as u32,
            threshold_bytes: THRESHOLD_BYTES,
            usable: usable.0,
        };
        Array::<_, Config>::try_from(self.object.map_mut("config").unwrap()).unwrap().set(0, config, 0).unwrap();
        let mut ports = Array::<_, Port>::try_from(self.object.map_mut("ports").unwrap()).unwrap();
        for (number, &ns_per_kib) in (0..).zip(ns_per_kib) {
            let port = Port { ifindex: number + 1, unused: 0, mac: MacKey::default(), dev: 0, ns_per_kib };
            ports.set(number, port, 0).unwrap();
        }
        let peer = Peer {
            macs: [MacKey::default(); MAX_PORTS],
            usable: usable.0,
            number: 7,
            ns_per_kib: theirs.map(|ns| ns as u32),
        };
        let mut peers = HashMap::<_, MacKey, Peer>::try_from(self.object.map_mut("peers").unwrap()).unwrap();
        peers.insert(MacKey::from(PEER), peer, 0).unwrap();
        let mut states = Array::<_, PeerState>::try_from(self.object.map_mut("peer_states").unwrap()).unwrap();
        states.set(peer.number, PeerState::default(), 0).unwrap();
    }

    fn set_usable(&mut self, usable: Mask) {
        let mut table = Array::<_, Config>::try_from(self.object.map_mut("config").unwrap()).unwrap();
        let config = table.get(&0, 0).unwrap();
        table.set(0, Config { usable: usable.0, ..config }, 0).unwrap();
    }

    /// The port, or none, and why.
    fn decide(&mut self, trace: Trace) -> Option<(u32, u32)> {
        let program: &mut SchedClassifier = self.object.program_mut("trace").unwrap().try_into().unwrap();
        // SAFETY: plain integers, without padding.
        let mut bytes = unsafe { std::mem::transmute::<Trace, [u8; size_of::<Trace>()]>(trace) };
        let verdict = test_run::run(program.fd().unwrap().as_fd(), &mut bytes, 0).unwrap();
        assert_eq!(verdict, 0, "the program did not take the packet");
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        (word(16) != u32::MAX).then(|| (word(16), word(20)))
    }
}

/// The program's number for it.
fn number(why: Why) -> u32 {
    [Why::First, Why::Hash, Why::Turn, Why::Pinned, Why::Spread, Why::Least].iter().position(|w| *w == why).unwrap()
        as u32
}

#[test]
fn the_program_decides_as_its_model() {
    let Some(kernel) = Kernel::new() else { return };
    let kernel = std::cell::RefCell::new(kernel);
    let step = (0..STREAMS, 0..3_000_000_u64, 60..65_000_u32, any::<u32>(), any::<u32>(), any::<u32>(), 0..400_000_u32);
    let strategy = (
        prop::sample::select(&Policy::ALL[..]),
        prop::collection::vec(1..5_u64, 1..=MAX_PORTS),
        // Of the peer's ports: 0, not known.
        prop_oneof![Just([0; MAX_PORTS]), prop::array::uniform16(0..8_u64)],
        1..=STREAMS,
        prop::collection::vec(step, 1..400),
    );
    proptest!(ProptestConfig::with_cases(96), |((policy, slowness, theirs, few, steps) in strategy)| {
        let mut kernel = kernel.borrow_mut();
        let ns_per_kib: Vec<u64> = slowness.iter().map(|slowness| slowness * NS_PER_KIB).collect();
        // Rates that just are and just are not alike are among them.
        let theirs = theirs.map(|quarters| quarters * NS_PER_KIB / 4);
        kernel.reset(policy, &ns_per_kib, theirs);
        let mut host = Host::new(policy, THRESHOLD_BYTES, &ns_per_kib);
        let mut peer = model::Peer::new(Mask::first(ns_per_kib.len()));
        peer.ns_per_kib = theirs;
        let mut streams = [Stream::default(); STREAMS];
        let (mut now_ns, mut segments, mut duplicates) = (1, 0_u32, 0_u32);
        for (who, later_ns, bytes, hash34, mask, backlog_bytes, queued) in steps {
            let who = who % few;
            // Now and then so long that streams count as idle, and lose their slots.
            now_ns += if mask % 31 == 0 { 200 * later_ns } else { later_ns };
            if mask % 61 == 0 {
                host.usable = Mask::first(ns_per_kib.len()).and(Mask(mask >> 8));
                kernel.set_usable(host.usable);
            }
            segments = segments.wrapping_add(mask % 500);
            duplicates = duplicates.wrapping_add(mask % 300);
            let look = (mask % 3 == 0).then(|| {
                let mut queued_bytes = [None; MAX_PORTS];
                for (port, to) in queued_bytes.iter_mut().enumerate() {
                    *to = (mask >> port & 3 != 0).then_some(queued.wrapping_mul(port as u32 % 3));
                }
                Look { queued_bytes }
            });
            let backlog_bytes = if mask % 4 == 0 { backlog_bytes % 10_000 } else { backlog_bytes };
            let packet = Packet {
                now_ns, bytes, hash2: hash34 >> 8 & 0xff, hash34: hash34 & 0xff, is_tcp: mask % 17 > 0, backlog_bytes,
                in_flight: mask % 3, is_last: mask % 29 == 0,
                unsent_bytes: if mask % 5 == 0 { mask % 3_000 } else { mask % 20_000 }, segments, duplicates, look,
            };
            let expected = host.decide(&mut peer, Some(&mut streams[who]), &packet).map(|d| (d.port, number(d.why)));
            prop_assert_eq!(kernel.decide(Trace::new(who, &packet)), expected, "{:?}", packet);
        }
    });
}
