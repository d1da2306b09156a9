//! The counters of the agent, which it writes to a file for `status`.

use crate::netns::Netns;
use multirail_proto::placement::exchange::Counts;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;

/// Frames that the agent received from other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExchangeCounts {
    /// Valid hellos, by outcome.
    #[serde(flatten)]
    pub hellos: Counts,
    /// Frames that are not valid hellos.
    #[serde(flatten)]
    pub refused: RefusedFrames,
}

/// Frames that are not valid hellos.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RefusedFrames {
    /// Without a proof that the sender knows the token.
    pub forged: u64,
    /// With such a proof, but not a hello of this version.
    pub malformed: u64,
}

impl ExchangeCounts {
    /// Reads the counters that the agent wrote last.
    pub(crate) fn load(netns: Netns) -> Option<Self> {
        serde_json::from_slice(&fs::read(netns.counts_file()).ok()?).ok()
    }

    /// Writes the counters atomically.
    pub(super) fn save(&self, netns: Netns) -> io::Result<()> {
        let path = netns.counts_file();
        let part = path.with_extension("part");
        fs::write(&part, serde_json::to_vec(self)?)?;
        fs::rename(part, path)
    }
}
