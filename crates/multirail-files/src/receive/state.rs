//! What a receiver keeps between two items.

use multirail_net::quota::Reservation;
use multirail_tree::extra::Extra;
use multirail_tree::meta::Meta;
use multirail_tree::part::Part;
use multirail_tree::report::{Cause, Problem};
use std::collections::HashSet;
use std::hash::RandomState;
use std::io::Write;

/// A file that arrives in pieces, in order.
pub(super) struct Medium {
    pub(super) path: Vec<u8>,
    pub(super) meta: Meta,
    pub(super) retry: bool,
    pub(super) extra: Option<Extra>,
    pub(super) total_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) hasher: blake3::Hasher,
    pub(super) part: Result<Part, Problem>,
    /// Of the sender's quota.
    pub(super) reserved: Reservation,
}

/// The fields that precede a file's content.
pub(super) struct Heading<'a> {
    pub(super) path: &'a [u8],
    pub(super) meta: Meta,
    pub(super) retry: bool,
    pub(super) extra: Option<Extra>,
}

impl Medium {
    /// Writes the next bytes and returns whether they belong to the file.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        self.received_bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        if let Ok(part) = &self.part
            && let Err(error) = part.file().write_all(bytes)
        {
            self.part = Err(Problem::io(Cause::Write, &error));
        }
        self.received_bytes <= self.total_bytes
    }
}

/// The names of a directory that stay.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) path: Vec<u8>,
    /// Hashes of the names, with a key that no peer knows. If two names had one hash, an entry would
    /// stay.
    pub(super) names: HashSet<u64>,
    pub(super) key: RandomState,
    pub(super) is_too_long: bool,
}
