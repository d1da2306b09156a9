//! Runs the program (`bpf/trace.bpf.c`) and the model with the same packets.

use super::port_set::PortSet;
use super::types::{Decision, HostModel, Packet, PeerModel};
use crate::kernel::test_run;
use crate::program::layout::*;
use aya::maps::{Array, HashMap};
use aya::programs::SchedClassifier;
use aya::{Btf, Ebpf, EbpfLoader};
use multirail_proto::placement::Mac;
use multirail_proto::placement::{MAX_PORTS, Policy};
use multirail_testing::{Requirement, skip};
use proptest::prelude::*;
use std::cell::RefCell;
use std::fmt::Debug;
use std::os::fd::AsFd;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/trace.bpf.o"));
const NS_PER_KIB: u64 = 81_920; // 100 Mbit/s
const PEER: Mac = Mac([2, 0, 0, 0, 1, 0]);
const PEER_INDEX: u32 = 7;
const THRESHOLD_BYTES: u32 = 7_000;
const STREAMS: usize = TRACED_STREAMS as usize;

/// The program, with maps of its own.
struct TracedProgram {
    object: Ebpf,
}

impl TracedProgram {
    /// Returns none where this process may not load programs. The test is then reported as skipped.
    fn new() -> Option<Self> {
        let loaded = Btf::from_sys_fs().map_err(|e| e.to_string()).and_then(|btf| {
            let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(|e| e.to_string())?;
            let program: &mut SchedClassifier =
                object.program_mut("trace").ok_or("no program")?.try_into().map_err(|_| "no classifier".to_owned())?;
            program.load().map_err(|e| format!("{e}: {:?}", std::error::Error::source(&e).map(ToString::to_string)))?;
            Ok(object)
        });
        // SAFETY: geteuid has no preconditions.
        let is_root = unsafe { libc::geteuid() } == 0;
        match loaded {
            Ok(object) => Some(Self { object }),
            // Root may load programs if the kernel has BTF; a refusal is then a fault of the
            // program.
            Err(why) if is_root && std::path::Path::new("/sys/kernel/btf/vmlinux").exists() => panic!("{why}"),
            Err(why) => {
                skip(Requirement::Bpf, format!("the program cannot be loaded: {why}"));
                None
            }
        }
    }

    fn array<T: aya::Pod>(&mut self, name: &str) -> Array<&mut aya::maps::MapData, T> {
        Array::try_from(self.object.map_mut(name).expect("a map of this name")).unwrap()
    }

    /// Writes the maps of a host and a peer, and clears all streams.
    fn reset(&mut self, host: &HostModel, peer: &PeerModel) {
        for number in 0..MAX_PORTS {
            let port = host.ports.get(number).copied().unwrap_or_default();
            self.array("ports").set(number as u32, port, 0).unwrap();
            self.array("port_states").set(number as u32, PortState::default(), 0).unwrap();
        }
        self.array("host_state").set(0, host.state, 0).unwrap();
        self.array("config").set(0, host.config, 0).unwrap();
        for stream in 0..TRACED_STREAMS {
            self.array("traced_streams").set(stream, StreamState::default(), 0).unwrap();
        }
        let mut peers = HashMap::<_, MacKey, PeerEntry>::try_from(self.object.map_mut("peers").unwrap()).unwrap();
        peers.insert(MacKey::from(PEER), peer.entry, 0).unwrap();
        self.array("peer_states").set(PEER_INDEX, peer.state, 0).unwrap();
    }

    fn decide(&mut self, stream: usize, packet: Packet) -> Option<Decision> {
        let program: &mut SchedClassifier = self.object.program_mut("trace").unwrap().try_into().unwrap();
        let mut ethernet = [0; 16];
        ethernet[..6].copy_from_slice(&PEER.0);
        let traced = traced_packet { ethernet, stream: stream as u32, unused: 0, packet };
        // SAFETY: the struct consists of integers without padding.
        let mut bytes = unsafe { std::mem::transmute::<traced_packet, [u8; size_of::<traced_packet>()]>(traced) };
        let verdict = test_run::run(program.fd().unwrap().as_fd(), &mut bytes, 0).unwrap();
        assert_eq!(verdict, 0, "the program did not take the packet");
        let at = bytes[16..].as_ptr().cast::<traced_decision>();
        // SAFETY: the packet is longer than the addresses and a decision, which consists of
        // integers.
        let traced_decision { port, reason } = unsafe { at.read_unaligned() };
        (port >= 0).then_some(Decision { port: port as u32, reason })
    }

    /// Compares all state with that of the model.
    fn assert_state(&mut self, host: &HostModel, peer: &PeerModel, streams: &[StreamState]) {
        fn text(state: impl Debug) -> String {
            format!("{state:#?}")
        }
        assert_eq!(text(self.array::<HostState>("host_state").get(&0, 0).unwrap()), text(host.state));
        assert_eq!(text(self.array::<PeerState>("peer_states").get(&PEER_INDEX, 0).unwrap()), text(peer.state));
        for (number, expected) in (0..).zip(&host.port_states) {
            assert_eq!(text(self.array::<PortState>("port_states").get(&number, 0).unwrap()), text(expected));
        }
        for (number, expected) in (0..).zip(streams) {
            assert_eq!(text(self.array::<StreamState>("traced_streams").get(&number, 0).unwrap()), text(expected));
        }
    }
}

#[test]
fn the_program_decides_as_its_model() {
    let Some(program) = TracedProgram::new() else { return };
    let program = RefCell::new(program);
    let step = (0..STREAMS, 0..3_000_000_u64, 60..65_000_u32, any::<u32>(), any::<u32>(), any::<u32>(), 0..400_000_u32);
    let strategy = (
        prop::sample::select(Policy::ALL),
        prop::collection::vec(1..5_u64, 1..=MAX_PORTS),
        // The speeds of the peer's ports; 0: unknown.
        prop_oneof![Just([0; MAX_PORTS]), prop::array::uniform16(0..8_u64)],
        1..=STREAMS,
        prop::collection::vec(step, 1..400),
    );
    proptest!(ProptestConfig::with_cases(96), |((policy, slowness, remote, stream_count, steps) in strategy)| {
        let mut program = program.borrow_mut();
        let ns_per_kib: Vec<u64> = slowness.iter().map(|slowness| slowness * NS_PER_KIB).collect();
        let all = PortSet::first(ns_per_kib.len());
        let mut host = HostModel::new(policy, THRESHOLD_BYTES, &ns_per_kib);
        let mut peer = PeerModel::new(all);
        peer.entry.index = PEER_INDEX;
        // Steps of a quarter: rates just inside and just outside the limits of similar ones.
        peer.entry.ns_per_kib = remote.map(|quarters| (quarters * NS_PER_KIB / 4) as u32);
        program.reset(&host, &peer);
        let mut streams = [StreamState::default(); STREAMS];
        let (mut now_ns, mut segments, mut duplicates) = (1, 0_u32, 0_u32);
        for (stream, later_ns, bytes, hash, mask, backlog_bytes, queue_bytes) in steps {
            let stream = stream % stream_count;
            // Sometimes long enough for streams to become idle and to lose their slots.
            now_ns += if mask % 31 == 0 { 200 * later_ns } else { later_ns };
            if mask % 61 == 0 {
                host.config.usable_ports = all.0 & mask >> 8;
                program.array("config").set(0, host.config, 0).unwrap();
            }
            segments = segments.wrapping_add(mask % 500);
            duplicates = duplicates.wrapping_add(mask % 300);
            let known_queues = (0..MAX_PORTS as u32).filter(|port| mask >> port & 3 != 0).collect::<PortSet>();
            let queue_bytes = std::array::from_fn(|port| queue_bytes.wrapping_mul(port as u32 % 3));
            let packet = Packet {
                now_ns, bytes, layer2_hash: hash >> 8 & 0xff, layer34_hash: hash & 0xff, is_tcp: u32::from(mask % 17 > 0),
                backlog_bytes: if mask % 4 == 0 { backlog_bytes % 10_000 } else { backlog_bytes },
                in_flight_segments: mask % 3, ends_stream: u32::from(mask % 29 == 0),
                unsent_bytes: if mask % 5 == 0 { mask % 3_000 } else { mask % 20_000 }, segments, duplicates,
                has_queues: u32::from(mask % 3 == 0), known_queues: known_queues.0, queue_bytes,
            };
            let expected = host.decide(&mut peer, &mut streams[stream], &packet);
            prop_assert_eq!(program.decide(stream, packet), expected, "{:?}", packet);
        }
        program.assert_state(&host, &peer, &streams[..stream_count]);
    });
}
