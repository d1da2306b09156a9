//! The progress of a broadcast: a line for each cluster, then the slowest host and the traffic
//! between clusters.

use super::output::{Wan, cluster_names, format_time, wan};
use crate::escape;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use multirail::multicast::{HostState, Progress, Snapshot};
use multirail_proto::units::format_size;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const UPDATE_EVERY: Duration = Duration::from_millis(250);
/// Permanent lines and objects are printed at a longer interval.
const TELL_EVERY: u32 = 4;
/// The weight of the newest interval in a displayed rate. It follows a change within seconds and
/// does not flicker.
const NEWEST: f64 = 0.2;
/// The most clusters with a line. The last line includes the others.
const MAX_BARS: usize = 16;
/// The most pairs of clusters in the text, the busiest first.
const MAX_PAIRS: usize = 6;

/// The progress display, until it is dropped.
pub struct Shown {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Shows bars if stderr is a terminal; with `always`, lines on stderr, or objects on stdout if
/// `json`.
pub fn show(progress: Arc<Progress>, clusters: Option<Vec<String>>, always: bool, json: bool) -> Shown {
    let terminal = std::io::stderr().is_terminal();
    if !always && !terminal {
        return Shown { stop: None, thread: None };
    }
    let (stop, stopped) = channel();
    let thread = std::thread::spawn(move || {
        let mut view = View::new(clusters);
        let mut bars = (terminal && !(json && always)).then(Bars::new);
        let mut updates = 0;
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(UPDATE_EVERY) {
            let now = view.update(&progress.snapshot());
            updates += 1;
            match &mut bars {
                Some(bars) => bars.show(&now),
                None if updates % TELL_EVERY == 0 => now.tell(json),
                None => {}
            }
        }
        bars.iter().for_each(|bars| drop(bars.all.clear()));
    });
    Shown { stop: Some(stop), thread: Some(thread) }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A snapshot of a broadcast, as it is shown.
#[derive(Debug, Serialize)]
struct Now {
    seconds: f64,
    bytes: u64,
    /// Bytes that were read and hashed before the first was sent.
    hashed_bytes: u64,
    clusters: Vec<ClusterNow>,
    slowest: Option<Slowest>,
    eta_seconds: Option<f64>,
    wan: Vec<Wan>,
}

#[derive(Debug, Serialize)]
struct ClusterNow {
    name: String,
    hosts: usize,
    complete: usize,
    waiting: usize,
    failed: usize,
    /// The share of the data that its hosts hold, without failed hosts.
    share: f64,
    /// The mean rate of its hosts.
    rate_mbit_s: f64,
}

#[derive(Debug, Serialize)]
struct Slowest {
    address: String,
    share: f64,
}

/// The previous values, for rates.
struct View {
    /// The given clusters.
    clusters: Option<Vec<String>>,
    seconds: f64,
    hosts: Vec<HostView>,
}

#[derive(Clone, Copy, Default)]
struct HostView {
    held_bytes: u64,
    rate_bytes_s: Option<f64>,
}

impl View {
    fn new(clusters: Option<Vec<String>>) -> Self {
        Self { clusters, seconds: 0.0, hosts: Vec::new() }
    }

    fn update(&mut self, snapshot: &Snapshot) -> Now {
        let seconds = snapshot.elapsed.as_secs_f64();
        let since = seconds - self.seconds;
        self.seconds = seconds;
        self.hosts.resize(snapshot.hosts.len(), HostView::default());
        let total = snapshot.total_bytes.max(1) as f64;
        let names = cluster_names(self.clusters.as_deref(), snapshot.wan_bytes.len());
        let mut clusters: Vec<ClusterNow> = (names.iter())
            .map(|name| ClusterNow {
                name: name.clone(),
                hosts: 0,
                complete: 0,
                waiting: 0,
                failed: 0,
                share: 0.0,
                rate_mbit_s: 0.0,
            })
            .collect();
        let mut slowest: Option<(f64, &str, f64)> = None;
        for (host, view) in snapshot.hosts.iter().zip(&mut self.hosts) {
            if since > 0.0 {
                let rate = host.held_bytes.saturating_sub(view.held_bytes) as f64 / since;
                view.rate_bytes_s = Some(view.rate_bytes_s.map_or(rate, |old| old + NEWEST * (rate - old)));
            }
            view.held_bytes = host.held_bytes;
            let rate = view.rate_bytes_s.unwrap_or(0.0);
            let share = if host.state == HostState::Complete { 1.0 } else { host.held_bytes as f64 / total };
            let Some(cluster) = clusters.get_mut(host.cluster as usize) else { continue };
            cluster.hosts += 1;
            match host.state {
                HostState::Failed(_) => {
                    cluster.failed += 1;
                    continue;
                }
                HostState::Complete => cluster.complete += 1,
                HostState::Waiting(_) => cluster.waiting += 1,
                HostState::Running => {}
            }
            cluster.share += share;
            cluster.rate_mbit_s += rate * 8.0 / 1e6;
            if share < 1.0 && slowest.is_none_or(|(least, ..)| share < least) {
                slowest = Some((share, &host.address, rate));
            }
        }
        for cluster in &mut clusters {
            let count = (cluster.hosts - cluster.failed).max(1) as f64;
            cluster.share /= count;
            cluster.rate_mbit_s /= count;
        }
        // A cluster that contains only the root has nothing to show.
        clusters.retain(|c| c.hosts > 0);
        let eta = slowest.and_then(|(share, _, rate)| (rate > 0.0).then(|| (1.0 - share) * total / rate));
        Now {
            seconds,
            bytes: snapshot.total_bytes,
            hashed_bytes: snapshot.hashed_bytes,
            clusters,
            slowest: slowest.map(|(share, address, _)| Slowest { address: address.to_owned(), share }),
            eta_seconds: eta,
            wan: wan(&names, &snapshot.wan_bytes),
        }
    }
}

impl ClusterNow {
    fn line(&self) -> String {
        // For complete clusters the average of rates would only show the past.
        let rate = match self.complete + self.failed < self.hosts {
            true => format!("{:>7.0} Mbit/s per host", self.rate_mbit_s),
            false => format!("{:>21}", "-"),
        };
        let (share, complete, hosts) = (100.0 * self.share, self.complete, self.hosts);
        let mut line = format!("{:<12} {share:>3.0} %  {rate}  {complete} of {hosts} hosts complete", self.name);
        for (count, what) in [(self.waiting, "waiting"), (self.failed, "failed")] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        line
    }
}

impl Now {
    fn last_line(&self) -> String {
        if self.clusters.is_empty() {
            return format!("reading: {}", format_size(self.hashed_bytes));
        }
        let mut parts = Vec::new();
        if let Some(slowest) = &self.slowest {
            parts.push(format!("slowest {} {:.0} %", slowest.address, 100.0 * slowest.share));
        }
        if let Some(seconds) = self.eta_seconds.filter(|s| *s < 1e6) {
            parts.push(format!("{} left", format_time(Duration::from_secs_f64(seconds))));
        }
        let mut pairs: Vec<&Wan> = self.wan.iter().collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.bytes));
        let pairs = pairs.iter().take(MAX_PAIRS);
        let pairs: Vec<_> = pairs.map(|w| format!("{}>{} {}", w.from, w.to, format_size(w.bytes))).collect();
        if !pairs.is_empty() {
            parts.push(pairs.join(" "));
        }
        parts.join("; ")
    }

    /// Prints permanent lines.
    fn tell(&self, json: bool) {
        if json {
            let object = serde_json::json!({ "progress": self }).to_string();
            let _ = writeln!(std::io::stdout(), "{}", escape::json(&object));
            return;
        }
        let lines = self.clusters.iter().take(MAX_BARS).map(ClusterNow::line).chain([self.last_line()]);
        let lines = lines.collect::<Vec<_>>().join("\n");
        let _ = writeln!(std::io::stderr(), "{}", escape::lines(&lines));
    }
}

struct Bars {
    all: MultiProgress,
    lines: Vec<ProgressBar>,
}

impl Bars {
    fn new() -> Self {
        Self { all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()), lines: Vec::new() }
    }

    fn show(&mut self, now: &Now) {
        let lines: Vec<String> =
            now.clusters.iter().take(MAX_BARS).map(ClusterNow::line).chain([now.last_line()]).collect();
        while self.lines.len() < lines.len() {
            let line = self.all.add(ProgressBar::new_spinner());
            line.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
            self.lines.push(line);
        }
        for (bar, line) in self.lines.iter().zip(lines) {
            bar.set_message(line);
            bar.tick();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use multirail::multicast::HostProgress;

    fn snapshot(seconds: u64, hosts: &[(&str, u32, u64, HostState)]) -> Snapshot {
        let hosts = hosts.iter().map(|(address, cluster, held_bytes, state)| HostProgress {
            address: (*address).to_owned(),
            cluster: *cluster,
            held_bytes: *held_bytes,
            state: state.clone(),
        });
        Snapshot {
            total_bytes: 1000,
            hashed_bytes: 1000,
            elapsed: Duration::from_secs(seconds),
            hosts: hosts.collect(),
            wan_bytes: vec![vec![0, 500, 0], vec![0; 3], vec![0; 3]],
        }
    }

    #[test]
    fn clusters_have_a_line_and_the_slowest_host_is_named() {
        let mut view = View::new(Some(["a", "b", "root"].map(str::to_owned).to_vec()));
        let failed = HostState::Failed("no".to_owned());
        view.update(&snapshot(0, &[("x", 0, 0, HostState::Running), ("y", 1, 0, HostState::Running)]));
        let now = view.update(&snapshot(
            1,
            &[
                ("x", 0, 1000, HostState::Complete),
                ("y", 1, 250, HostState::Running),
                ("z", 1, 0, failed),
                ("w", 1, 750, HostState::Waiting(None)),
            ],
        ));
        let shares: Vec<_> =
            now.clusters.iter().map(|c| (c.name.as_str(), c.share, c.hosts, c.complete, c.failed)).collect();
        assert_eq!(shares, [("a", 1.0, 1, 1, 0), ("b", 0.5, 3, 0, 1)]);
        let slowest = now.slowest.as_ref().unwrap();
        assert_eq!((slowest.address.as_str(), slowest.share, now.eta_seconds), ("y", 0.25, Some(3.0)));
        assert_eq!(now.clusters[0].line(), "a            100 %                      -  1 of 1 hosts complete");
        assert!(now.clusters[1].line().ends_with("0 of 3 hosts complete, 1 waiting, 1 failed"));
        assert_eq!(now.last_line(), "slowest y 25 %; 3 s left; a>b 500 B");
    }

    #[test]
    fn reading_is_shown_before_sending() {
        let now = View::new(None).update(&Snapshot { hashed_bytes: 2048, ..Snapshot::default() });
        assert_eq!((now.last_line(), now.eta_seconds), ("reading: 2 KiB".to_owned(), None));
    }
}
