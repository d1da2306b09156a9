//! What a server tells about each request: for an audit log and for metrics.

use crate::protocol::ProtocolName;
use crate::sync::lock;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The most paths, and the most further details, in one record.
const MAX_ENTRIES: usize = 64;
/// The most bytes of one of them.
const MAX_ENTRY_BYTES: usize = 4096;

/// Gets a record of each request after its end. A router calls it from the threads of sessions, so it
/// should return soon.
pub trait Observer: Send + Sync + 'static {
    /// A request has begun.
    fn request_began(&self, protocol: ProtocolName) {
        let _ = protocol;
    }

    /// A request, or a connection that belongs to no session, has ended.
    fn request_ended(&self, record: &Record<'_>);
}

/// A request that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Record<'a> {
    /// The address from which the client came.
    pub peer: SocketAddr,
    /// The client's key, as in a file of authorized keys.
    pub identity: Option<&'a str>,
    /// The name of the client beside its key in the file of authorized keys; empty if it has none.
    pub name: &'a str,
    /// The protocol of the request.
    pub protocol: ProtocolName,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// Bytes that this host sent for it.
    pub sent_bytes: u64,
    /// Bytes that this host received for it.
    pub received_bytes: u64,
    /// What the handler of the protocol noted.
    pub notes: &'a Noted,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
}

impl Record<'_> {
    /// The result in one word, and the reason if it is neither `ok` nor `partial`: `refused`, or `failed`.
    pub fn result(&self) -> (&'static str, Option<&str>) {
        let notes = self.notes;
        match (self.error, &notes.refused, &notes.failure) {
            (Some(error), _, _) => ("failed", Some(error)),
            (None, Some(why), _) => ("refused", Some(why)),
            (None, None, Some(why)) => ("failed", Some(why)),
            (None, None, None) if notes.failed.is_some_and(|count| count > 0) => ("partial", None),
            (None, None, None) => ("ok", None),
        }
    }
}

/// What the handler of a protocol notes about a request. Texts and paths may be chosen by the client.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Noted {
    /// What was asked for, in one word.
    pub operation: Option<&'static str>,
    /// The paths below the served folder that the request names; at most 64.
    pub paths: Vec<Vec<u8>>,
    /// Anything else that the request names, for example programs; at most 64.
    pub details: Vec<String>,
    /// How many paths and details were left out.
    pub left_out: u64,
    /// Files and directories that were stored or sent.
    pub entries: Option<u64>,
    /// Files and directories that failed.
    pub failed: Option<u64>,
    /// Why this host refused the request.
    pub refused: Option<String>,
    /// Why it failed although its session did not.
    pub failure: Option<String>,
    /// Bytes sent and received over other sessions than that of the request.
    pub elsewhere_bytes: (u64, u64),
}

/// The notes of one request. Clones are of the same request.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Noted>>);

impl Notes {
    /// Notes what is asked for, in one word.
    pub fn operation(&self, operation: &'static str) {
        lock(&self.0).operation = Some(operation);
    }

    /// Notes a path below the served folder. Its bytes beyond 4,096 are left out.
    pub fn path(&self, path: &[u8]) {
        let noted = &mut *lock(&self.0);
        if noted.paths.len() < MAX_ENTRIES {
            noted.paths.push(path[..path.len().min(MAX_ENTRY_BYTES)].to_vec());
        } else {
            noted.left_out += 1;
        }
    }

    /// Notes something else that the request names.
    pub fn detail(&self, mut detail: String) {
        let noted = &mut *lock(&self.0);
        if noted.details.len() < MAX_ENTRIES {
            detail.truncate(detail.floor_char_boundary(MAX_ENTRY_BYTES));
            noted.details.push(detail);
        } else {
            noted.left_out += 1;
        }
    }

    /// Notes how many files and directories were moved, and how many were not.
    pub fn entries(&self, moved: u64, failed: u64) {
        let noted = &mut *lock(&self.0);
        (noted.entries, noted.failed) = (Some(moved), Some(failed));
    }

    /// Notes why this host refuses the request.
    pub fn refused(&self, why: &str) {
        lock(&self.0).refused = Some(why.to_owned());
    }

    /// Notes why the request failed, where its session does not fail with it.
    pub fn failure(&self, why: &str) {
        lock(&self.0).failure = Some(why.to_owned());
    }

    /// Notes what was moved over other sessions than that of the request.
    pub fn elsewhere(&self, sent_bytes: u64, received_bytes: u64) {
        lock(&self.0).elsewhere_bytes = (sent_bytes, received_bytes);
    }

    /// What was noted so far.
    pub fn noted(&self) -> Noted {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_cannot_make_a_record_long() {
        let notes = Notes::default();
        for _ in 0..MAX_ENTRIES + 3 {
            notes.path(&[b'a'; MAX_ENTRY_BYTES + 1]);
        }
        notes.detail("é".repeat(MAX_ENTRY_BYTES));
        let noted = notes.noted();
        assert_eq!((noted.paths.len(), noted.left_out), (MAX_ENTRIES, 3));
        assert!(noted.paths.iter().all(|path| path.len() == MAX_ENTRY_BYTES));
        assert_eq!(noted.details[0].len(), MAX_ENTRY_BYTES);
    }
}
