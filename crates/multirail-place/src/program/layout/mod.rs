//! The values of the program's maps, generated from `bpf/layout.h` and `bpf/parameters.h`.
//!
//! `scripts/build-bpf` runs bindgen on both headers. `scripts/build-bpf --check` compares the
//! result with the committed file.

#[allow(non_camel_case_types, dead_code, unreachable_pub, clippy::undocumented_unsafe_blocks)]
mod generated;

pub(crate) use generated::config as Config;
#[cfg(test)]
pub(super) use generated::*;
pub(super) use generated::{
    REASON_EARLIEST, REASON_FIRST_PORT, REASON_HASH, REASON_PINNED, REASON_ROUND_ROBIN, REASON_SPREAD,
    host_state as HostState, mac as MacKey, peer as PeerEntry, peer_state as PeerState, port as PortEntry,
    port_state as PortState, stream_state as StreamState,
};

use multirail_proto::placement::{MAX_PEERS, MAX_PORTS, Mac, Policy};

const _: () = assert!(generated::MAX_PORTS as usize == MAX_PORTS && generated::MAX_PEERS as usize == MAX_PEERS);

impl From<Mac> for MacKey {
    fn from(mac: Mac) -> Self {
        Self { bytes: mac.0, unused: [0; 2] }
    }
}

impl From<MacKey> for Mac {
    fn from(key: MacKey) -> Self {
        Mac(key.bytes)
    }
}

/// The program's number of a policy.
pub(crate) fn policy_number(policy: Policy) -> u32 {
    match policy {
        Policy::Single => generated::POLICY_SINGLE,
        Policy::Layer2 => generated::POLICY_LAYER2,
        Policy::Layer34 => generated::POLICY_LAYER34,
        Policy::RoundRobin => generated::POLICY_ROUND_ROBIN,
        Policy::Backlog => generated::POLICY_BACKLOG,
        Policy::Adaptive => generated::POLICY_ADAPTIVE,
    }
}

macro_rules! impl_pod {
    ($($type:ty),+) => {
        // SAFETY: the struct consists of integers, for which all bytes are valid values, and
        // layout.h is compiled with an error for padding.
        $(unsafe impl aya::Pod for $type {})+
    };
}
impl_pod!(Config, HostState, MacKey, PeerEntry, PeerState, PortEntry, PortState, StreamState);
