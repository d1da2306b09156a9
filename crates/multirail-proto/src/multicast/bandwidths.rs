//! The bandwidths that planners use.

use super::members::Members;
use serde::{Deserialize, Serialize};

/// Bandwidths as payload rates that applications achieve, without headers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bandwidths {
    /// From cluster (row) to cluster (column), bytes/s; 0: no link. The diagonal is ignored.
    pub link_bytes_s: Vec<Vec<f64>>,
    /// The rate of each host to other clusters, and equally from them, in bytes/s (MOB paper,
    /// section 2.2, the access link). `None`: hosts are not a limit.
    #[serde(default)]
    pub access_bytes_s: Option<Vec<f64>>,
}

/// Why bandwidths do not fit the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthsError {
    /// The matrix is not clusters x clusters.
    #[error("bandwidths between clusters are not a matrix of {clusters} x {clusters}")]
    Links {
        /// How many clusters there are.
        clusters: usize,
    },
    /// The number of access rates differs from the number of hosts.
    #[error("{given} access bandwidths for {hosts} hosts")]
    Access {
        /// How many were given.
        given: usize,
        /// How many hosts there are.
        hosts: usize,
    },
    /// A rate is negative, infinite or not a number.
    #[error("a bandwidth is negative or not a finite number")]
    NoRate,
}

impl Bandwidths {
    /// Links only; hosts are not a limit.
    pub fn of_links(link_bytes_s: Vec<Vec<f64>>) -> Self {
        Self { link_bytes_s, access_bytes_s: None }
    }

    /// Checks that the bandwidths fit the hosts.
    ///
    /// # Errors
    ///
    /// [`BandwidthsError`], if a bandwidth is missing or cannot be one.
    pub fn check(&self, members: &Members) -> Result<(), BandwidthsError> {
        let clusters = members.clusters().len();
        if self.link_bytes_s.len() != clusters || self.link_bytes_s.iter().any(|row| row.len() != clusters) {
            return Err(BandwidthsError::Links { clusters });
        }
        let access = self.access_bytes_s.as_deref().unwrap_or(&[]);
        if self.access_bytes_s.is_some() && access.len() != members.count() {
            return Err(BandwidthsError::Access { given: access.len(), hosts: members.count() });
        }
        let good = |rate: &f64| rate.is_finite() && *rate >= 0.0;
        if !self.link_bytes_s.iter().flatten().chain(access).all(good) {
            return Err(BandwidthsError::NoRate);
        }
        Ok(())
    }

    /// From one cluster to another, bytes/s.
    pub(super) fn link(&self, from: usize, to: usize) -> f64 {
        if from == to { 0.0 } else { self.link_bytes_s[from][to] }
    }

    /// The rate of all hosts of a cluster together to other clusters, and from them, in bytes/s.
    /// Infinite if hosts are not a limit.
    pub(super) fn cluster_access(&self, members: &Members, cluster: usize) -> f64 {
        match &self.access_bytes_s {
            None => f64::INFINITY,
            Some(access) => members.clusters()[cluster].iter().map(|host| access[*host as usize]).sum(),
        }
    }
}
