//! What `multirail cp` prints at its end.

use crate::printer::Printer;
use multirail::files::{Failure, Report, Skipped};
use multirail_proto::units::format_size;
use serde::Serialize;

/// The most skipped and failed files that are listed as text. JSON output lists more.
const MAX_LINES: usize = 100;

/// The result of a copy.
#[derive(Serialize)]
pub(super) struct CopySummary {
    files: u64,
    directories: u64,
    links: u64,
    unchanged: u64,
    deleted: u64,
    bytes: u64,
    resumed_bytes: u64,
    seconds: f64,
    rate_mbit_s: f64,
    retried: u64,
    rails: Vec<RailRow>,
    skipped_count: u64,
    skipped: Vec<Skipped>,
    pub(super) failed_count: u64,
    failed: Vec<FailedRow>,
}

#[derive(Serialize)]
struct RailRow {
    local: String,
    remote: String,
    bytes: u64,
    share: f64,
    rate_mbit_s: f64,
    rtt_us: u32,
}

#[derive(Serialize)]
struct FailedRow {
    message: String,
    #[serde(flatten)]
    failure: Failure,
}

impl CopySummary {
    pub(super) fn new(report: Report, seconds: f64, rails: &[multirail::session::RailStatus], upload: bool) -> Self {
        let moved = |r: &multirail::session::RailStatus| if upload { r.sent_bytes } else { r.received_bytes };
        let sum: u64 = rails.iter().map(moved).sum();
        let rate = |bytes: u64| bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9);
        let rails = rails.iter().map(|rail| {
            let (local, remote) = rail
                .addresses
                .map_or_else(|| ("down".to_owned(), "down".to_owned()), |(l, r)| (l.to_string(), r.to_string()));
            let bytes = moved(rail);
            let share = bytes as f64 / sum.max(1) as f64;
            RailRow { local, remote, bytes, share, rate_mbit_s: rate(bytes), rtt_us: rail.rtt_us }
        });
        Self {
            files: report.files,
            directories: report.directories,
            links: report.links,
            unchanged: report.unchanged,
            deleted: report.deleted,
            bytes: report.bytes,
            resumed_bytes: report.resumed_bytes,
            seconds,
            rate_mbit_s: rate(report.bytes.saturating_sub(report.resumed_bytes)),
            retried: report.retried,
            rails: rails.collect(),
            skipped_count: report.skipped_count,
            skipped: report.skipped,
            failed_count: report.failed_count,
            failed: report.failed.into_iter().map(|f| FailedRow { message: f.to_string(), failure: f }).collect(),
        }
    }

    /// Lists skipped and failed files.
    pub(super) fn explain(&self, printer: &Printer) {
        for skipped in self.skipped.iter().take(MAX_LINES) {
            printer.note(format!("skipped {}: {}", skipped.path.display(), skipped.what));
        }
        for failed in self.failed.iter().take(MAX_LINES) {
            printer.note(format!("error: {}", failed.message));
        }
        let unnamed = |count: u64, named: usize| count.saturating_sub(named.min(MAX_LINES) as u64);
        match unnamed(self.skipped_count, self.skipped.len()) + unnamed(self.failed_count, self.failed.len()) {
            0 => {}
            more => printer.note(format!("... and {more} more")),
        }
    }

    pub(super) fn line(&self) -> String {
        let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut line = format!(
            "{}, {} in {:.1} s, {:.0} Mbit/s on {}",
            count(self.files, "file"),
            format_size(self.bytes),
            self.seconds,
            self.rate_mbit_s,
            count(self.rails.len() as u64, "rail"),
        );
        if self.resumed_bytes > 0 {
            line += &format!("; {} had arrived before", format_size(self.resumed_bytes));
        }
        for (number, what) in [
            (self.unchanged, "unchanged"),
            (self.links, "linked"),
            (self.deleted, "deleted"),
            (self.retried, "sent twice"),
            (self.skipped_count, "skipped"),
            (self.failed_count, "failed"),
        ] {
            if number > 0 {
                line += &format!("; {number} {what}");
            }
        }
        line
    }
}
