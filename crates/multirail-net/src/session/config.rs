//! How a session is configured.

use crate::error::{Error, Result};
use crate::handshake::Peer;
use crate::permissions::Permissions;
use crate::rate_limit::RateLimit;
use crate::secure::authorized_keys::{AuthorizedKeys, Client};
use crate::secure::identity::Identity;
use crate::secure::known_hosts::KnownHosts;
use crate::secure::public_key::PublicKey;
use crate::token::Token;
use multirail_proto::session::{MachineConfig, Role};
use multirail_proto::striping::Strategy;
use multirail_proto::topology::RailFilter;
use std::fmt;
use std::num::NonZero;
use std::time::Duration;

/// How many channels a session opens on each rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channels {
    /// Starts with one channel, and finds the number by measurement while data moves.
    #[default]
    Auto,
    /// Always this number.
    Fixed(NonZero<u32>),
}

impl Channels {
    /// The number of channels with which a rail starts.
    #[must_use]
    pub fn initial(self) -> u32 {
        match self {
            Self::Auto => 1,
            Self::Fixed(count) => count.get(),
        }
    }
}

impl From<NonZero<u32>> for Channels {
    fn from(count: NonZero<u32>) -> Self {
        Self::Fixed(count)
    }
}

/// `auto`, or the number.
impl fmt::Display for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(count) => count.fmt(f),
        }
    }
}

/// How a session works. The defaults fit most uses; other values are for experiments and unusual
/// networks.
///
/// Each method sets one value and returns the configuration:
///
/// ```
/// use multirail_net::{Config, Token};
/// use std::time::Duration;
///
/// let config = Config::new().token(Token::new(b"a secret")).give_up_after(Duration::from_secs(5));
/// assert_eq!(config.fragment_bytes, 2048);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The secret that both sides must know; default none.
    pub token: Option<Token>,
    /// The key pair of this side; default [`Identity::of_process`].
    pub identity: Identity,
    /// The servers whose keys this side knows, beside its own; default none.
    pub known_hosts: KnownHosts,
    /// The clients that this side accepts as a server, beside those with its own key and those with
    /// the token; default none.
    pub authorized_keys: AuthorizedKeys,
    /// Whether data travels unencrypted and unauthenticated; default no.
    pub plaintext: bool,
    /// How messages are distributed over channels; default [`Strategy::Adaptive`].
    pub strategy: Strategy,
    /// Channels on each rail; default [`Channels::Auto`].
    pub channels: Channels,
    /// The fragment of `shared-counter` and `two-ended`, in bytes; default 2 KiB as in section 5.2
    /// of the paper on Enhanced MuniSocket.
    pub fragment_bytes: u32,
    /// Which rails may be used; default all.
    pub rails: RailFilter,
    /// How long a session outlives its last rail; default 30 s.
    pub give_up_after: Duration,
    /// Limits of the rate of its sessions; default none. All of them hold.
    pub rate_limits: Vec<RateLimit>,
    /// Whether what this side sends yields to other traffic; default no.
    pub background: bool,
    /// Whether this side waits for several packets of a slow rail before it reads; default no.
    pub batch_reads: bool,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            token: None,
            identity: Identity::of_process(),
            known_hosts: KnownHosts::default(),
            authorized_keys: AuthorizedKeys::default(),
            plaintext: false,
            strategy: Strategy::Adaptive,
            channels: Channels::Auto,
            fragment_bytes: 2048,
            rails: RailFilter::default(),
            give_up_after: Duration::from_secs(30),
            rate_limits: Vec::new(),
            background: false,
            batch_reads: false,
        }
    }

    /// Sets the secret that both sides must know, or none.
    #[must_use]
    pub fn token(mut self, token: impl Into<Option<Token>>) -> Self {
        self.token = token.into();
        self
    }

    /// Sets the key pair of this side.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Sets the servers whose keys this side knows. Its own key counts as known.
    #[must_use]
    pub fn known_hosts(mut self, hosts: KnownHosts) -> Self {
        self.known_hosts = hosts;
        self
    }

    /// Sets the clients that this side accepts without a token. Its own key is always accepted.
    #[must_use]
    pub fn authorized_keys(mut self, keys: AuthorizedKeys) -> Self {
        self.authorized_keys = keys;
        self
    }

    /// Sets whether to give up the encryption of data. Then everyone on the path can read and change
    /// it; only the two ends of a connection are authenticated. Both sides must ask for it.
    #[must_use]
    pub fn plaintext(mut self, plaintext: bool) -> Self {
        self.plaintext = plaintext;
        self
    }

    /// Sets how messages are distributed over channels.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets how many channels each rail gets.
    #[must_use]
    pub fn channels(mut self, channels: impl Into<Channels>) -> Self {
        self.channels = channels.into();
        self
    }

    /// Sets the fragment of `shared-counter` and `two-ended`, in bytes. 0 counts as 1.
    #[must_use]
    pub fn fragment_bytes(mut self, bytes: u32) -> Self {
        self.fragment_bytes = bytes;
        self
    }

    /// Sets which rails may be used.
    #[must_use]
    pub fn rails(mut self, rails: RailFilter) -> Self {
        self.rails = rails;
        self
    }

    /// Sets how long a session outlives its last rail.
    #[must_use]
    pub fn give_up_after(mut self, duration: Duration) -> Self {
        self.give_up_after = duration;
        self
    }

    /// Adds a limit of the rate: all sessions with it, or with a clone of it, move no more together, in both
    /// directions. Handshakes and the control connection are not counted.
    #[must_use]
    pub fn rate_limit(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.rate_limits.extend(limit.into());
        self
    }

    /// Sets whether what this side sends yields to other traffic on each rail, by the rule of
    /// [`multirail_proto::background`]. Each rail then has one channel, unless a number is given.
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Sets whether this side waits for several packets of a slow rail before it reads, for up to 1 ms.
    /// That takes less CPU time, and strategies learn of the rates of rails later.
    #[must_use]
    pub fn batch_reads(mut self, batch_reads: bool) -> Self {
        self.batch_reads = batch_reads;
        self
    }

    /// What this side knows of a client that has proven its key, and what the client may do; `None` if
    /// it is not let in. The token and this side's own key give all rights.
    pub(crate) fn client(&self, peer: Peer) -> Option<Client> {
        let known = self.authorized_keys.client_or_reload(peer.key);
        if peer.has_token || peer.key == self.identity.public_key() {
            return Some(Client { permissions: Permissions::default(), ..known.unwrap_or_default() });
        }
        known
    }

    /// Fails if this side knows another key of the server `host`, or no key and there is no token that
    /// the server could prove.
    pub(crate) fn check_server(&self, host: &str, key: PublicKey) -> Result<()> {
        match self.known_hosts.check(host, key) {
            Err(Error::HostUnknown { .. }) if self.token.is_some() || key == self.identity.public_key() => Ok(()),
            checked => checked,
        }
    }

    /// What the session's machine needs of it.
    pub(super) fn machine(&self, role: Role) -> MachineConfig {
        MachineConfig {
            role,
            strategy: self.strategy,
            fragment_bytes: self.fragment_bytes.max(1),
            tune_channels: self.channels == Channels::Auto && !self.background,
            batch_reads: self.batch_reads,
            give_up_after: self.give_up_after,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}
