//! The hosts and options of a broadcast.

use super::joining::Joining;
use super::progress::Progress;
use multirail_net::Config;
use multirail_proto::multicast::{Bandwidths, Method};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A host that receives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BroadcastHost {
    /// The address of its server: `name:port` or `address:port`. The other hosts use it, too.
    pub address: String,
    /// The host's cluster. Clusters are numbered from 0 without gaps, including the root's cluster.
    pub cluster: u32,
}

impl BroadcastHost {
    /// The host whose server is at `address` (`name:port` or `address:port`), in `cluster`.
    #[must_use]
    pub fn new(address: impl Into<String>, cluster: u32) -> Self {
        Self { address: address.into(), cluster }
    }
}

/// How to broadcast. The defaults fit most uses.
///
/// ```
/// use multirail_multicast::{Method, Options};
///
/// let options = Options::new().destination("dataset").recursive(true);
/// assert_eq!(options.method, Method::Adaptive);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Who sends which piece to whom; default `adaptive`.
    pub method: Method,
    /// Where the hosts put the data, below the folders that their servers serve, as with
    /// `multirail cp`. Default: the folder itself.
    pub destination: PathBuf,
    /// Whether to send directories with their content; default no.
    pub recursive: bool,
    /// Whether a host gives a file its name only when its content is on the disk, and is complete
    /// only when the names are, too; default no. This costs the disk's latency for each file and
    /// directory.
    pub sync: bool,
    /// The bandwidths for the methods that plan with them (`balanced`, `fpfr`) and need them;
    /// default none.
    pub bandwidths: Option<Bandwidths>,
    /// The token and rails of all sessions.
    pub config: Config,
    /// The progress of the broadcast, for a display.
    pub progress: Arc<Progress>,
    /// The address (and port) at which the others reach this host. Default: the address from which
    /// it reaches each of them.
    pub advertise: Option<String>,
    /// The size of a piece in bytes, a power of two between 16 KiB and 1 MiB. Default: a size that
    /// makes some thousand pieces.
    pub piece_bytes: Option<u32>,
    /// How long to wait for a host that was present and is lost, once all others are complete;
    /// default 10 s.
    pub wait_for_lost: Duration,
    /// After this time without progress on any host, incomplete hosts are given up; default 120 s.
    pub give_up_after: Duration,
    /// Whether the given clusters are a guess, which measurements correct while data moves. Only `adaptive`
    /// changes its clusters; the other methods keep the given ones.
    pub find_clusters: bool,
    /// Lets hosts join by a ticket; default not. Only with `adaptive`.
    pub joining: Option<Joining>,
    /// When the user's command began; all times in the summary and in the progress count from then. `None`:
    /// the call.
    pub began: Option<Instant>,
    /// The seed of all random choices; default: a new one each time.
    pub seed: Option<u64>,
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            method: Method::default(),
            destination: PathBuf::new(),
            recursive: false,
            sync: false,
            bandwidths: None,
            config: Config::default(),
            progress: Arc::default(),
            advertise: None,
            piece_bytes: None,
            wait_for_lost: Duration::from_secs(10),
            give_up_after: Duration::from_secs(120),
            find_clusters: false,
            joining: None,
            began: None,
            seed: None,
        }
    }

    /// Sets who sends which piece to whom.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets where the hosts put the data, below the folders that their servers serve.
    #[must_use]
    pub fn destination(mut self, destination: impl Into<PathBuf>) -> Self {
        self.destination = destination.into();
        self
    }

    /// Sets whether directories are sent with their content.
    #[must_use]
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.recursive = recursive;
        self
    }

    /// Sets whether files and directories are on the disk of a host before it is complete.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Sets the bandwidths for the methods that plan with them.
    #[must_use]
    pub fn bandwidths(mut self, bandwidths: impl Into<Option<Bandwidths>>) -> Self {
        self.bandwidths = bandwidths.into();
        self
    }

    /// Sets the token and rails of all sessions.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the address at which the others reach this host.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<Option<String>>) -> Self {
        self.advertise = address.into();
        self
    }

    /// Sets the size of a piece in bytes, a power of two between 16 KiB and 1 MiB.
    #[must_use]
    pub fn piece_bytes(mut self, bytes: impl Into<Option<u32>>) -> Self {
        self.piece_bytes = bytes.into();
        self
    }

    /// Sets how long to wait for a host that was present and is lost.
    #[must_use]
    pub fn wait_for_lost(mut self, duration: Duration) -> Self {
        self.wait_for_lost = duration;
        self
    }

    /// Sets the time without progress on any host after which incomplete hosts are given up.
    #[must_use]
    pub fn give_up_after(mut self, duration: Duration) -> Self {
        self.give_up_after = duration;
        self
    }

    /// Sets whether the given clusters are a guess.
    #[must_use]
    pub fn find_clusters(mut self, find_clusters: bool) -> Self {
        self.find_clusters = find_clusters;
        self
    }

    /// Sets whether hosts can join by a ticket.
    #[must_use]
    pub fn joining(mut self, joining: impl Into<Option<Joining>>) -> Self {
        self.joining = joining.into();
        self
    }

    /// Sets when the user's command began.
    #[must_use]
    pub fn began(mut self, began: impl Into<Option<Instant>>) -> Self {
        self.began = began.into();
        self
    }

    /// Sets the seed of all random choices.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
