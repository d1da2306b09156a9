//! The data of the model.

use super::port_set::PortSet;
use crate::program::layout::{self, *};
use multirail_proto::placement::Policy;

/// What a packet's decision depends on, as the program gets it.
pub(super) type Packet = layout::packet;

/// This host: its ports and its policy.
#[derive(Clone)]
pub(super) struct HostModel {
    pub(super) policy: Policy,
    pub(super) config: Config,
    pub(super) ports: Vec<PortEntry>,
    pub(super) port_states: Vec<PortState>,
    pub(super) state: HostState,
}

/// Another host.
#[derive(Clone)]
pub(super) struct PeerModel {
    pub(super) entry: PeerEntry,
    pub(super) state: PeerState,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The port's number.
    pub(super) port: u32,
    pub(super) reason: reason,
}

impl HostModel {
    /// A host with a port for each of `ns_per_kib`, the time for 1 KiB at its nominal speed.
    pub(super) fn new(policy: Policy, threshold_bytes: u32, ns_per_kib: &[u64]) -> Self {
        let config = Config {
            policy: layout::policy_number(policy),
            port_count: ns_per_kib.len() as u32,
            threshold_bytes,
            usable_ports: PortSet::first(ns_per_kib.len()).0,
        };
        let ports = (1..).zip(ns_per_kib).map(|(ifindex, &ns_per_kib)| PortEntry {
            ifindex,
            ns_per_kib,
            ..PortEntry::default()
        });
        let mut state = HostState::default();
        state.ns_per_kib[..ns_per_kib.len()].copy_from_slice(ns_per_kib);
        HostModel {
            policy,
            config,
            ports: ports.collect(),
            port_states: vec![PortState::default(); ns_per_kib.len()],
            state,
        }
    }
}

impl PeerModel {
    /// A peer whose `usable` ports work, and which does not report how fast they are.
    pub(super) fn new(usable: PortSet) -> Self {
        PeerModel { entry: PeerEntry { usable_ports: usable.0, ..PeerEntry::default() }, state: PeerState::default() }
    }
}
