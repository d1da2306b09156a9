//! What the program and this host's tools share: the values of its maps, as `bpf/place.bpf.c` has them.

use multirail_proto::placement::{MAX_PORTS, Mac, SLOTS};

/// An address as a map's key: padded to eight bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct MacKey {
    mac: [u8; 6],
    pad: [u8; 2],
}

impl From<Mac> for MacKey {
    fn from(mac: Mac) -> Self {
        Self { mac: mac.0, pad: [0; 2] }
    }
}

impl From<MacKey> for Mac {
    fn from(key: MacKey) -> Self {
        Mac(key.mac)
    }
}

/// `config`: one entry.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Config {
    pub(super) policy: u32,
    /// How many ports there are.
    pub(super) ports: u32,
    pub(super) threshold_bytes: u32,
    /// Bit p: packets may leave by port p.
    pub(super) usable: u32,
}

/// `host_state`: one entry, written by the program.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostState {
    looked_ns: u64,
    next_packet: u32,
    next_stream: u32,
    free_ns: [u64; MAX_PORTS],
    /// What each port needs for a KiB: nominal at first.
    pub(super) ns_per_kib: [u64; MAX_PORTS],
}

/// `ports`: an entry a port.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Port {
    pub(super) ifindex: u32,
    pub(super) unused: u32,
    pub(super) mac: MacKey,
    /// Where the kernel keeps the port, found by the program `learn`; 0 if not known.
    pub(super) dev: u64,
    /// By the speed that the hardware says.
    pub(super) ns_per_kib: u64,
}

/// `port_states`: an entry a port, written by the program.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PortState {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// In the port's queue when the program looked last.
    pub(super) backlog_bytes: u64,
    /// As measured.
    pub(super) ns_per_kib: u64,
    pub(super) sampled_ns: u64,
    pub(super) sampled_bytes: u64,
    pub(super) sampled_queued: u64,
    pub(super) fastest_ns_per_kib: u64,
    pub(super) samples: u64,
    pub(super) was_idle: u64,
}

/// `peers`: by the address of a host's first port.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peer {
    /// Bit p: port p of this host reaches port p of that one.
    pub(super) usable: u32,
    /// Of its entry in `peer_states`.
    pub(super) number: u32,
    /// What its ports need for a KiB at the speed that it tells of; 0: it tells of none.
    pub(super) ns_per_kib: [u32; MAX_PORTS],
    pub(super) macs: [MacKey; MAX_PORTS],
}

/// `peer_states`: an entry a peer, written by the program: see `bpf/place.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerState {
    counts: [u64; 5],
    free: [u64; MAX_PORTS],
    /// How long each port has worked for this peer, in nanoseconds, where the policy is `adaptive`.
    pub(super) given: [u64; MAX_PORTS],
    slots: [[u64; 2]; SLOTS],
}

impl Default for PeerState {
    fn default() -> Self {
        Self { counts: [0; 5], free: [0; MAX_PORTS], given: [0; MAX_PORTS], slots: [[0; 2]; SLOTS] }
    }
}

/// `streams`: of a socket, written by the program: see `bpf/place.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stream {
    pub(super) port: u32,
    /// 1: it stays there.
    pub(super) pinned: u32,
    pub(super) why: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) moves: u64,
    number: u32,
    slot: u32,
    /// Bit k: it may use port k.
    pub(super) ports: u32,
    rest: [u32; 5],
    judged_ns: u64,
    busy_ns: u64,
}

// SAFETY: all of them are plain integers without padding, and any bytes are valid values.
unsafe impl aya::Pod for MacKey {}
// SAFETY: as above.
unsafe impl aya::Pod for Config {}
// SAFETY: as above.
unsafe impl aya::Pod for HostState {}
// SAFETY: as above.
unsafe impl aya::Pod for Port {}
// SAFETY: as above.
unsafe impl aya::Pod for PortState {}
// SAFETY: as above.
unsafe impl aya::Pod for Peer {}
// SAFETY: as above.
unsafe impl aya::Pod for PeerState {}
