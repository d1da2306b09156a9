//! What came of a copy, and what its user can see while it runs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures and skipped files beyond so many are counted, not named.
pub const MAX_NAMED: usize = 10_000;
/// No reason is longer on the wire.
pub(super) const MAX_REASON_BYTES: usize = 200;

/// What came of a copy.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Files that are at their destination, verified.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Directories that were made or already there.
    pub directories: u64,
    /// Files sent a second time because the first did not arrive as it was.
    pub retried: u64,
    /// What is not copied at all: symlinks, sockets, devices.
    pub skipped: Vec<Skipped>,
    /// How many those are, also where they are too many to name.
    pub skipped_count: u64,
    /// What did not get there, and why.
    pub failed: Vec<Failure>,
    /// How many those are, also where they are too many to name.
    pub failed_count: u64,
}

impl Report {
    /// Whether everything that can be copied was.
    pub fn is_success(&self) -> bool {
        self.failed_count == 0
    }

    pub(crate) fn fail(&mut self, path: &Path, side: Side, problem: Problem) {
        self.failed_count += 1;
        if self.failed.len() < MAX_NAMED {
            let Problem { cause, reason } = problem;
            self.failed.push(Failure { path: path.to_owned(), side, cause, reason });
        }
    }

    pub(crate) fn skip(&mut self, path: &Path, what: &str) {
        self.skipped_count += 1;
        if self.skipped.len() < MAX_NAMED {
            self.skipped.push(Skipped { path: path.to_owned(), what: what.to_owned() });
        }
    }
}

/// One file that was left out on purpose.
#[derive(Debug, Clone, Serialize)]
pub struct Skipped {
    /// Which.
    pub path: PathBuf,
    /// What it is: "a symlink".
    pub what: String,
}

/// One file that is not there.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Which, from the source's name on.
    pub path: PathBuf,
    /// Whose doing it was.
    pub side: Side,
    /// What went wrong.
    pub cause: Cause,
    /// In words.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, side, cause, reason } = self;
        let side = match side {
            Side::Client => "this host",
            Side::Server => "the server",
        };
        let path = path.display();
        match cause {
            Cause::Read => write!(f, "{side} could not read {path}: {reason}"),
            Cause::Write => write!(f, "{side} could not write {path}: {reason}"),
            Cause::Refused => write!(f, "{side} refused {path}: {reason}"),
            Cause::Changed => write!(f, "{path} changed on {side}: {reason}"),
            Cause::Mismatch => write!(f, "{path} arrived on {side} with other content than it was sent with: {reason}"),
        }
    }
}

/// The two ends of a copy, whichever way the files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The one that asked for the copy.
    Client,
    /// The one that serves.
    Server,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The source could not be read.
    Read,
    /// The destination could not be written.
    Write,
    /// The path is not allowed.
    Refused,
    /// The source changed while it was read.
    Changed,
    /// What arrived has another hash than what was sent.
    Mismatch,
}

impl Cause {
    /// Whether a second try can help.
    pub(super) fn is_passing(self) -> bool {
        matches!(self, Cause::Changed | Cause::Mismatch)
    }
}

/// A failure whose file and side are known from where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub cause: Cause,
    pub reason: String,
}

impl Problem {
    pub(crate) fn new(cause: Cause, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        while reason.len() > MAX_REASON_BYTES {
            reason.pop();
        }
        Self { cause, reason }
    }

    pub(crate) fn io(cause: Cause, error: &io::Error) -> Self {
        // "No space left on device (os error 28)": the number is for programs.
        let text = error.to_string();
        let reason = text.split(" (os error").next().unwrap_or_default();
        if error.raw_os_error() == Some(libc::EXDEV) {
            return Self::new(Cause::Refused, "a symlink on its path leads out of the folder that may be used");
        }
        Self::new(cause, reason)
    }
}

/// Why a file that should have had more bytes did not give them.
pub(super) fn read_problem(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::new(Cause::Changed, "it became shorter while it was read"),
        _ => Problem::io(Cause::Read, error),
    }
}

/// Counts that rise while a copy runs; read them from anywhere.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    expected_bytes: AtomicU64,
    files: AtomicU64,
}

impl Progress {
    /// Bytes that this side has sent or received, with what travelled twice.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are known to be on their way or to come: those of the files found so far.
    pub fn expected_bytes(&self) -> u64 {
        self.expected_bytes.load(Ordering::Relaxed)
    }

    /// Files that this side is done with.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.expected_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}
