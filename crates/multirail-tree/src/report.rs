//! The result of a copy, and its progress while it runs.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many failures and how many skipped files a report names. Further ones are only counted.
pub const MAX_NAMED: usize = 10_000;
/// The longest reason on the wire and in a report, in bytes.
pub const MAX_REASON_BYTES: usize = 200;
/// The longest path in a report, in bytes. Of a longer one, the report has the beginning and the end.
pub const MAX_SHOWN_BYTES: usize = 1024;
/// What the list of failures holds at most, in bytes, and that of skipped files as well. Further
/// ones are only counted.
pub const MAX_LIST_BYTES: usize = 4 << 20;

/// The result of a copy.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Files that arrived and were verified.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Directories that were made or existed.
    pub directories: u64,
    /// Files, symbolic links and hard links that the destination had already.
    pub unchanged: u64,
    /// Symbolic links and hard links that were made.
    pub links: u64,
    /// Bytes of files that an earlier copy had brought before it was interrupted.
    pub resumed_bytes: u64,
    /// Entries of the destination that were deleted because the source has none of that name.
    pub deleted: u64,
    /// Files that were sent twice, because the first time they did not arrive unchanged.
    pub retried: u64,
    /// Entries that are never copied: symbolic links, sockets, devices. At most [`MAX_NAMED`], and at
    /// most [`MAX_LIST_BYTES`].
    pub skipped: Vec<Skipped>,
    /// How many entries were skipped.
    pub skipped_count: u64,
    /// Files that were not copied, and why. At most [`MAX_NAMED`], and at most [`MAX_LIST_BYTES`].
    pub failed: Vec<Failure>,
    /// How many files failed.
    pub failed_count: u64,
    /// What `skipped` holds.
    #[serde(skip)]
    skipped_bytes: usize,
    /// What `failed` holds.
    #[serde(skip)]
    failed_bytes: usize,
}

impl Report {
    /// Whether no file failed.
    pub fn is_success(&self) -> bool {
        self.failed_count == 0
    }

    /// Counts a failure, and names it if there is room.
    pub fn fail(&mut self, path: &Path, side: Side, problem: Problem) {
        self.failed_count += 1;
        if self.failed.len() >= MAX_NAMED {
            return;
        }
        // The peer can send a longer reason than `Problem::new` makes.
        let Problem { cause, reason } = problem;
        let (path, reason) = (shortened(path), cut(&reason, MAX_REASON_BYTES).to_owned());
        self.failed_bytes += size_of::<Failure>() + path.as_os_str().len() + reason.len();
        if self.failed_bytes <= MAX_LIST_BYTES {
            self.failed.push(Failure { path, side, cause, reason });
        }
    }

    /// Counts a skipped entry, and names it if there is room.
    pub fn skip(&mut self, path: &Path, what: &str) {
        self.skipped_count += 1;
        if self.skipped.len() >= MAX_NAMED {
            return;
        }
        let (path, what) = (shortened(path), cut(what, MAX_REASON_BYTES).to_owned());
        self.skipped_bytes += size_of::<Skipped>() + path.as_os_str().len() + what.len();
        if self.skipped_bytes <= MAX_LIST_BYTES {
            self.skipped.push(Skipped { path, what });
        }
    }
}

/// The beginning and the end of a path that is longer than [`MAX_SHOWN_BYTES`].
fn shortened(path: &Path) -> PathBuf {
    const GAP: &[u8] = b"...";
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() <= MAX_SHOWN_BYTES {
        return path.to_owned();
    }
    let half = (MAX_SHOWN_BYTES - GAP.len()) / 2;
    OsString::from_vec([&bytes[..half], GAP, &bytes[bytes.len() - half..]].concat()).into()
}

/// The beginning of `text`, at most `limit_bytes` long.
fn cut(text: &str, limit_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(limit_bytes)]
}

/// An entry that is never copied.
#[derive(Debug, Clone, Serialize)]
pub struct Skipped {
    /// Its path. Serialized as `path` with U+FFFD for bytes that are not UTF-8. If there are such
    /// bytes, `path_hex` has all bytes of the path in hexadecimal digits.
    #[serde(flatten, serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// Its type in words: `a symlink`.
    pub what: String,
}

/// A file that was not copied.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Its path, beginning with the source's name. Serialized as that of [`Skipped`] is.
    #[serde(flatten, serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// The side that caused the failure.
    pub side: Side,
    /// The kind of failure.
    pub cause: Cause,
    /// The reason in words.
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
            Cause::Mismatch => write!(f, "{path} arrived on {side} with different content: {reason}"),
        }
    }
}

/// One of the two ends of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The end that asked for the copy.
    Client,
    /// The end that serves files.
    Server,
}

/// The kind of a failure.
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
    /// The hash of the content that arrived differs from the hash that was sent.
    Mismatch,
}

impl Cause {
    /// Whether a second attempt can succeed.
    pub fn is_passing(self) -> bool {
        matches!(self, Cause::Changed | Cause::Mismatch)
    }
}

/// A failure without its file and side, which follow from where it occurs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of failure.
    pub cause: Cause,
    /// The reason in words.
    pub reason: String,
}

impl Problem {
    /// A failure with this reason, which is cut after 200 bytes.
    pub fn new(cause: Cause, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(cut(&reason, MAX_REASON_BYTES).len());
        Self { cause, reason }
    }

    /// A failure of a system call.
    pub fn io(cause: Cause, error: &io::Error) -> Self {
        // The number in "No space left on device (os error 28)" is of no use to a person.
        let text = error.to_string();
        let reason = text.split(" (os error").next().unwrap_or_default();
        if error.raw_os_error() == Some(libc::EXDEV) {
            return Self::new(Cause::Refused, "a symlink on its path leads out of the folder that may be used");
        }
        Self::new(cause, reason)
    }
}

/// Serializes the entries `path` and, unless it is UTF-8, `path_hex`.
fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("path", &path.to_string_lossy())?;
    if path.to_str().is_none() {
        let bytes = path.as_os_str().as_bytes().iter();
        map.serialize_entry("path_hex", &bytes.map(|byte| format!("{byte:02x}")).collect::<String>())?;
    }
    map.end()
}

/// The failure of reading a file that was expected to be longer.
pub fn read_problem(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::new(Cause::Changed, "it became shorter while it was read"),
        _ => Problem::io(Cause::Read, error),
    }
}

/// Counters that rise while a copy runs. Any thread may read them.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    expected_bytes: AtomicU64,
    files: AtomicU64,
    unchanged: AtomicU64,
    resumed_bytes: AtomicU64,
    found_all: AtomicBool,
}

impl Progress {
    /// Bytes that the receiver has, as far as this side knows. Files that are sent again count again.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the files that have been found so far.
    pub fn expected_bytes(&self) -> u64 {
        self.expected_bytes.load(Ordering::Relaxed)
    }

    /// Files that the receiver has finished, as far as this side knows.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Files that the receiver had already, as far as this side knows.
    pub fn unchanged(&self) -> u64 {
        self.unchanged.load(Ordering::Relaxed)
    }

    /// How many of [`Progress::bytes`] an earlier copy had brought.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes.load(Ordering::Relaxed)
    }

    /// Whether [`Progress::expected_bytes`] are those of all files.
    pub fn has_found_all(&self) -> bool {
        self.found_all.load(Ordering::Relaxed)
    }

    /// Adds files that the receiver had already.
    pub fn add_unchanged(&self, files: u64) {
        self.unchanged.fetch_add(files, Ordering::Relaxed);
    }

    /// Adds bytes that an earlier copy had brought.
    pub fn resume(&self, bytes: u64) {
        self.resumed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.add_bytes(bytes);
    }

    /// Notes that all files have been found.
    pub fn find_all(&self) {
        self.found_all.store(true, Ordering::Relaxed);
    }

    /// Adds bytes that were received.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes of a file that was found.
    pub fn expect(&self, bytes: u64) {
        self.expected_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back bytes of a file that need not be sent.
    pub fn expect_less(&self, bytes: u64) {
        self.expected_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds finished files.
    pub fn add_files(&self, files: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_a_report_use_little_memory() {
        let long = PathBuf::from("x".repeat(60_000));
        let mut report = Report::default();
        for _ in 0..20_000 {
            report.fail(&long, Side::Client, Problem { cause: Cause::Read, reason: "y".repeat(3000) });
            report.skip(&long, &"z".repeat(3000));
        }
        let failed = report.failed.iter().map(|f| size_of::<Failure>() + f.path.as_os_str().len() + f.reason.len());
        let skipped = report.skipped.iter().map(|s| size_of::<Skipped>() + s.path.as_os_str().len() + s.what.len());
        assert!(failed.sum::<usize>() <= MAX_LIST_BYTES && skipped.sum::<usize>() <= MAX_LIST_BYTES);
        assert!(report.failed.len() > 3000 && report.skipped.len() > 3000);
        assert_eq!((report.failed_count, report.skipped_count), (20_000, 20_000));
    }

    #[test]
    fn short_names_are_all_in_a_report() {
        let mut report = Report::default();
        for number in 0..=MAX_NAMED {
            report.fail(Path::new(&format!("{number:0200}")), Side::Client, Problem::new(Cause::Read, "no"));
        }
        assert_eq!((report.failed.len(), report.failed_count as usize), (MAX_NAMED, MAX_NAMED + 1));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let exact = PathBuf::from("x".repeat(MAX_SHOWN_BYTES));
        assert_eq!(shortened(&exact), exact);
        let longer = PathBuf::from(format!("begin{}end", "x".repeat(MAX_SHOWN_BYTES)));
        let short = shortened(&longer).into_os_string().into_string().unwrap();
        assert!(short.len() <= MAX_SHOWN_BYTES && short.starts_with("beginx") && short.ends_with("xend"), "{short}");
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("aä", 3), "aä");
        assert_eq!(Problem::new(Cause::Read, "ä".repeat(101)).reason.len(), MAX_REASON_BYTES);
    }
}
