//! `serve --audit`: a line of JSON for each request that has ended.
//!
//! A line that cannot be written does not stop the server. It is counted and reported.

use crate::escape;
use multirail::record::{Observer, Record};
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// How often failures to write are reported.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The log.
pub struct Audit {
    /// `None`: stderr.
    path: Option<PathBuf>,
    state: Mutex<State>,
    failures: Counter,
}

struct State {
    file: Option<File>,
    /// Failures since the last report.
    unreported: u64,
    reported_at: Option<Instant>,
    /// Whether the last write may have ended within a line.
    torn: bool,
}

impl Audit {
    /// Opens the file `path` to append to it, or stderr if it is `-`.
    pub fn open(path: &Path, failures: Counter) -> std::io::Result<Self> {
        let path = (path != Path::new("-")).then(|| path.to_owned());
        let file = path.as_deref().map(open).transpose()?;
        let state = State { file, unreported: 0, reported_at: None, torn: false };
        Ok(Self { path, state: Mutex::new(state), failures })
    }

    /// Opens the file again, after it was renamed. If that fails, the old one is used on.
    pub fn reopen(&self) -> std::io::Result<()> {
        if let Some(path) = &self.path {
            let file = open(path)?;
            let mut state = self.lock();
            (state.file, state.torn) = (Some(file), false);
        }
        Ok(())
    }

    fn write(&self, line: &str) {
        let mut state = self.lock();
        let State { file, torn, .. } = &mut *state;
        // One call a line, so that lines of several processes do not mix.
        let text = format!("{}{line}\n", if *torn { "\n" } else { "" });
        let written = match file {
            Some(file) => file.write_all(text.as_bytes()),
            None => std::io::stderr().write_all(text.as_bytes()),
        };
        *torn = written.is_err();
        if let Err(error) = written {
            self.failures.inc();
            state.unreported += 1;
            if state.reported_at.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                let lost = std::mem::take(&mut state.unreported);
                state.reported_at = Some(Instant::now());
                tracing::error!(%error, lost, "cannot write to the audit log");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
    /// When the request ended.
    time: String,
    took_s: f64,
    peer: String,
    identity: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    paths: Vec<Named>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    details: &'a [String],
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
    sent_bytes: u64,
    received_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

/// A path; its bytes, too, where they are not UTF-8.
#[derive(Serialize)]
struct Named {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl Named {
    fn new(bytes: &[u8]) -> Self {
        let path = String::from_utf8_lossy(bytes).into_owned();
        let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path_hex: (path.as_bytes() != bytes).then(hex), path }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn line(record: &Record<'_>) -> String {
    let mut time = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let (result, why) = record.result();
    let line = Line {
        time,
        took_s: record.took.as_secs_f64(),
        peer: record.peer.to_string(),
        identity: record.identity,
        name: record.name,
        service: record.protocol.to_string(),
        operation: record.notes.operation,
        paths: record.notes.paths.iter().map(|path| Named::new(path)).collect(),
        details: &record.notes.details,
        left_out: record.notes.left_out,
        sent_bytes: record.sent_bytes,
        received_bytes: record.received_bytes,
        entries: record.notes.entries,
        failed: record.notes.failed,
        result,
        why,
    };
    let json = serde_json::to_string(&line)
        .unwrap_or_else(|error| serde_json::json!({ "why": error.to_string() }).to_string());
    escape::json(&json).into_owned()
}

impl Observer for Audit {
    fn request_ended(&self, record: &Record<'_>) {
        self.write(&line(record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_written_is_counted() {
        let failures = Counter::default();
        let audit = Audit::open(Path::new("/dev/full"), failures.clone()).unwrap();
        audit.write("one");
        audit.write("two");
        assert_eq!(failures.get(), 2);
        assert_eq!(audit.lock().unreported, 1, "one report a minute");
    }

    #[test]
    fn the_line_after_a_torn_one_is_whole() {
        let path = std::env::temp_dir().join(format!("multirail-audit-{}", std::process::id()));
        let audit = Audit::open(&path, Counter::default()).unwrap();
        audit.write("one");
        audit.lock().torn = true;
        audit.write("two");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n\ntwo\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_path_keeps_its_bytes() {
        assert_eq!(serde_json::to_string(&Named::new(b"a\n")).unwrap(), r#"{"path":"a\n"}"#);
        assert_eq!(
            serde_json::to_string(&Named::new(b"a\xff")).unwrap(),
            "{\"path\":\"a\u{fffd}\",\"path_hex\":\"61ff\"}"
        );
    }
}
