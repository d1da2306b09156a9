//! Who shall get it, and how.

use super::{Bandwidths, Method, Progress};
use crate::Config;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A host that shall receive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Where its server listens: `name:port` or `address:port`. The other hosts are given it, too.
    pub address: String,
    /// Its cluster. Clusters are numbered from 0 without gaps, the root's among them.
    pub cluster: u32,
}

/// How to broadcast. The defaults are for everyone.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who sends what to whom; default adaptive.
    pub method: Method,
    /// Where the hosts put it, below the folder that their servers serve; as the last argument of `cp`. Default: there.
    pub destination: PathBuf,
    /// Send directories and all that is in them; default no.
    pub recursive: bool,
    /// For the methods that plan with bandwidths (`balanced`, `fpfr`), which need it; default none.
    pub bandwidths: Option<Bandwidths>,
    /// Token and rails of all sessions.
    pub config: Config,
    /// Follow the broadcast here.
    pub progress: Arc<Progress>,
    /// The address (and port) at which the others reach this host; default: the one from which it reaches each of them.
    pub advertise: Option<String>,
    /// Size of a piece in bytes, a power of two between 16 KiB and 1 MiB; default: so that there are some thousand.
    pub piece_bytes: Option<u32>,
    /// How long a host that was there and went away is waited for once all others have everything; default 10 s.
    pub wait_for_lost: Duration,
    /// When nothing moves on any host for this long, nothing will, and the hosts that lack something are given up; default 120 s.
    pub give_up_after: Duration,
    /// Seed of all random choices; default: another one every time.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            method: Method::default(),
            destination: PathBuf::new(),
            recursive: false,
            bandwidths: None,
            config: Config::default(),
            progress: Arc::default(),
            advertise: None,
            piece_bytes: None,
            wait_for_lost: Duration::from_secs(10),
            give_up_after: Duration::from_secs(120),
            seed: None,
        }
    }
}
