//! The bars of a running copy: a line for the whole, a line a rail. Only on a terminal.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use multirail::files::Progress;
use multirail::session::Watch;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const UPDATE_EVERY: Duration = Duration::from_millis(200);
/// Weight of the newest interval in a shown rate: it follows within a second, and does not flicker.
const NEWEST: f64 = 0.3;

/// Bars that are shown until this is dropped.
pub struct Bars {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Shows bars if stderr is a terminal.
pub fn show(watch: Watch, progress: Arc<Progress>, upload: bool) -> Bars {
    if !std::io::stderr().is_terminal() {
        return Bars { stop: None, thread: None };
    }
    let (stop, stopped) = channel();
    let thread = std::thread::spawn(move || {
        let mut screen = Screen::new(upload);
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(UPDATE_EVERY) {
            screen.update(&watch, &progress);
        }
        let _ = screen.all.clear();
    });
    Bars { stop: Some(stop), thread: Some(thread) }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Screen {
    all: MultiProgress,
    total: ProgressBar,
    rails: BTreeMap<u32, Line>,
    upload: bool,
    last: Instant,
}

struct Line {
    bar: ProgressBar,
    bytes: u64,
    rate_mbit_s: f64,
}

impl Screen {
    fn new(upload: bool) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let total = all.add(ProgressBar::new(0));
        let style = "{bar:30} {bytes} of {total_bytes} found  {bytes_per_sec}  {msg}";
        total.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { all, total, rails: BTreeMap::new(), upload, last: Instant::now() }
    }

    fn update(&mut self, watch: &Watch, progress: &Progress) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        self.total.set_length(progress.expected_bytes());
        self.total.set_position(progress.bytes().min(progress.expected_bytes()));
        self.total.set_message(format!("{} files", progress.files()));
        let rails = watch.rails();
        let moved = |r: &multirail::session::RailStatus| if self.upload { r.sent_bytes } else { r.received_bytes };
        let sum: u64 = rails.iter().map(moved).sum();
        for rail in &rails {
            let bytes = moved(rail);
            let line = self.rails.entry(rail.rail).or_insert_with(|| {
                let bar = self.all.add(ProgressBar::new_spinner());
                bar.set_style(
                    ProgressStyle::with_template("  {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
                );
                Line { bar, bytes, rate_mbit_s: 0.0 }
            });
            let now = bytes.saturating_sub(line.bytes) as f64 * 8.0 / 1e6 / seconds.max(1e-3);
            line.rate_mbit_s += NEWEST * (now - line.rate_mbit_s);
            line.bytes = bytes;
            let ends = rail.addresses.map_or_else(|| "down".to_owned(), |(l, r)| format!("{} > {}", l.ip(), r.ip()));
            let share = 100.0 * bytes as f64 / sum.max(1) as f64;
            let (rate, rtt_ms) = (line.rate_mbit_s, f64::from(rail.rtt_us) / 1e3);
            line.bar.set_message(format!("{ends}  {rate:.0} Mbit/s  {share:.0} %  RTT {rtt_ms:.2} ms"));
            line.bar.tick();
        }
    }
}
