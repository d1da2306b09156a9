//! The policies' names.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How streams are given to ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Policy {
    /// Everything by the first port.
    Single = 0,
    /// By both hosts' Ethernet addresses.
    Layer2 = 1,
    /// By addresses and ports of the transport, as LACP hashes.
    #[serde(rename = "layer3+4")]
    Layer34 = 2,
    /// Every packet by the next port.
    RoundRobin = 3,
    /// PMCME: a stream with much under way is pinned to the next port.
    Backlog = 4,
    /// Ours.
    #[default]
    Adaptive = 5,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 6] =
        [Self::Single, Self::Layer2, Self::Layer34, Self::RoundRobin, Self::Backlog, Self::Adaptive];

    /// The name used in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Layer2 => "layer2",
            Self::Layer34 => "layer3+4",
            Self::RoundRobin => "round-robin",
            Self::Backlog => "backlog",
            Self::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no policy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy `{0}`; there are single, layer2, layer3+4, round-robin, backlog and adaptive")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}
