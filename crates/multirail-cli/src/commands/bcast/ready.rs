//! The root's information before a broadcast.

use super::party::Invited;
use multirail::multicast::discover::Discovered;
use multirail::multicast::hosts::Clustering;
use multirail::multicast::{Bandwidths, BroadcastHost};

/// The root's information when the broadcast begins.
pub(super) struct Ready {
    /// All hosts, the root first.
    pub(super) invited: Invited,
    /// The address of each receiver, or why it is left out.
    pub(super) addresses: Vec<Result<String, String>>,
    /// The clusters of the root and of the receivers that are not left out.
    pub(super) clusters: Clustering,
    /// Whether the clusters were given, and not measured.
    pub(super) clusters_given: bool,
    /// The measurements between the hosts, if there are any.
    pub(super) found: Option<Discovered>,
    pub(super) bandwidths: Option<Bandwidths>,
}

impl Ready {
    /// The receivers that are not left out, by index.
    pub(super) fn present(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().enumerate().filter(|(_, a)| a.is_ok()).map(|(receiver, _)| receiver)
    }

    pub(super) fn hosts(&self) -> Vec<BroadcastHost> {
        let addresses = self.addresses.iter().flatten().zip(&self.clusters.of[1..]);
        addresses.map(|(address, cluster)| BroadcastHost { address: address.clone(), cluster: *cluster }).collect()
    }
}
