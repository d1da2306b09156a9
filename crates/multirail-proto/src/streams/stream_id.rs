//! The numbers of streams.

use std::fmt;

/// The number of a stream within its session. It is never used twice.
///
/// Streams that the dialling side opens have even numbers, those of the listening side odd ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// The stream of this number.
    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number, below 2⁴⁸.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The next stream of the same opener.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 2)
    }

    /// Whether both streams have the same opener.
    pub(super) const fn has_opener_of(self, other: Self) -> bool {
        self.0 % 2 == other.0 % 2
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
