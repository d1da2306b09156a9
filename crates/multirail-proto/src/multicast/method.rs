//! The methods, by name.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the data gets from one to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Method {
    /// MOB with requests by bandwidth-delay product, shares that move, rarest first, an end game, and a tree for small data.
    #[default]
    Adaptive,
    /// MOB (HPDC 2007, section 3.1).
    Mob,
    /// BitTorrent (MOB paper, section 2.5).
    Bittorrent,
    /// Balanced Multicasting (MOB paper, section 2.4): several trees with rates, from given bandwidths.
    Balanced,
    /// Fast Parallel File Replication (MOB paper, section 2.3): several trees, from given bandwidths.
    Fpfr,
    /// MagPIe: flat between clusters, binomial inside (MOB paper, section 4.1).
    Magpie,
    /// Each host to the next in the list.
    Chain,
    /// The root to everybody.
    Flat,
}

impl Method {
    /// All of them, the default first.
    pub const ALL: [Method; 8] = [
        Method::Adaptive,
        Method::Mob,
        Method::Bittorrent,
        Method::Balanced,
        Method::Fpfr,
        Method::Magpie,
        Method::Chain,
        Method::Flat,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Method::Adaptive => "adaptive",
            Method::Mob => "mob",
            Method::Bittorrent => "bittorrent",
            Method::Balanced => "balanced",
            Method::Fpfr => "fpfr",
            Method::Magpie => "magpie",
            Method::Chain => "chain",
            Method::Flat => "flat",
        }
    }

    /// Whether it plans with the bandwidths between clusters, and so needs them.
    pub fn needs_bandwidths(self) -> bool {
        matches!(self, Method::Balanced | Method::Fpfr)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no method of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no multicast method is called {0:?}; there are adaptive, mob, bittorrent, balanced, fpfr, magpie, chain and flat"
)]
pub struct UnknownMethod(pub String);

impl FromStr for Method {
    type Err = UnknownMethod;
    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        Method::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}
