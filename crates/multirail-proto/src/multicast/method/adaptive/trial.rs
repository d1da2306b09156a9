//! What a host knows of the limit of its rate: see [`super::recruit`].

use crate::multicast::members::MemberId;

/// A rate is measured over this time, at least.
pub(super) const MEASURED_S: f64 = 0.3;
/// The first pieces are not counted: connections are still slow.
const FIRST_PIECES: u32 = 4;

/// What a host that fetches knows of the limit.
#[derive(Debug)]
pub(super) enum Recruiting {
    /// It measures its rate.
    Before(Measuring),
    /// It had the rate `before`, in pieces/s, and gave a part of its share to the recruit `first`.
    Trial { before: f64, first: MemberId, measuring: Measuring },
    /// It knows, or has no share.
    Over,
}

/// The pieces that arrived from other clusters.
#[derive(Debug, Default)]
pub(super) struct Measuring {
    /// When the first one arrived.
    began_us: Option<u64>,
    pieces: u32,
    /// Pieces that are not counted.
    skipped: u32,
}

impl Measuring {
    fn arrived(&mut self, now_us: u64) {
        if self.skipped > 0 {
            self.skipped -= 1;
        } else if self.began_us.is_none() {
            self.began_us = Some(now_us);
        } else {
            self.pieces += 1;
        }
    }

    /// The rate in pieces/s, once at least `least` pieces have arrived.
    pub(super) fn rate_pieces_s(&self, least: u32, now_us: u64) -> Option<f64> {
        let took_s = now_us.saturating_sub(self.began_us?) as f64 / 1e6;
        (self.pieces >= least && took_s >= MEASURED_S).then(|| f64::from(self.pieces) / took_s)
    }
}

impl Recruiting {
    pub(super) fn new() -> Self {
        Self::Before(Measuring { skipped: FIRST_PIECES, ..Measuring::default() })
    }

    /// A piece arrived from another cluster.
    pub(super) fn arrived(&mut self, now_us: u64) {
        if let Self::Before(measuring) | Self::Trial { measuring, .. } = self {
            measuring.arrived(now_us);
        }
    }
}
