//! The root's information before a broadcast.

use super::party::Invited;
use multirail::multicast::discover::Discovered;
use multirail::multicast::hosts::Clustering;
use multirail::multicast::{Bandwidths, BroadcastHost};

/// Where clusters come from.
pub(super) enum ClustersFrom {
    /// The user.
    User,
    /// Measurements before the broadcast.
    Measurements(Discovered),
    /// A guess by addresses, which measurements correct during the broadcast.
    Addresses,
}

/// The root's information when the broadcast begins.
pub(super) struct Ready {
    /// All hosts, the root first.
    pub(super) invited: Invited,
    /// The address of each receiver, or why it is left out.
    pub(super) addresses: Vec<Result<String, String>>,
    /// The clusters of the root and of the receivers that are not left out.
    pub(super) clusters: Clustering,
    /// Whether the user gave the clusters, also where they were measured for `--plan`.
    pub(super) clusters_given: bool,
    /// Where the clusters, or with `--plan` the measurements, come from.
    pub(super) source: ClustersFrom,
    pub(super) bandwidths: Option<Bandwidths>,
}

impl Ready {
    /// The measurements before the broadcast.
    pub(super) fn found(&self) -> Option<&Discovered> {
        match &self.source {
            ClustersFrom::Measurements(found) => Some(found),
            _ => None,
        }
    }

    /// The names of clusters that were given; others have numbers from 1.
    pub(super) fn given_names(&self) -> Option<&[String]> {
        matches!(self.source, ClustersFrom::User).then_some(&self.clusters.names)
    }

    /// The receivers that are not left out, by index.
    pub(super) fn present(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().enumerate().filter(|(_, a)| a.is_ok()).map(|(receiver, _)| receiver)
    }

    pub(super) fn hosts(&self) -> Vec<BroadcastHost> {
        let addresses = self.addresses.iter().flatten().zip(&self.clusters.of[1..]);
        addresses.map(|(address, cluster)| BroadcastHost { address: address.clone(), cluster: *cluster }).collect()
    }
}
