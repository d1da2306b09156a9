//! Progress bars of a copy on a terminal: one line for the whole copy, and one for each rail.

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
/// The weight of the newest interval in a displayed rate, which is an exponential average. It
/// follows a change within a second and does not flicker.
const NEWEST: f64 = 0.3;
/// A longer time is not shown.
const LONGEST: Duration = Duration::from_hours(10_000);

/// Progress bars, which disappear when the value is dropped.
pub struct Bars {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Shows progress bars if stderr is a terminal.
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
    rate: Rate,
}

/// The rate at which bytes are confirmed. What an earlier copy has brought does not count.
#[derive(Debug, Default)]
struct Rate {
    bytes: u64,
    bytes_s: f64,
}

impl Rate {
    /// Takes the bytes that are confirmed after another interval.
    fn update(&mut self, bytes: u64, seconds: f64) {
        let now = bytes.saturating_sub(self.bytes) as f64 / seconds.max(1e-3);
        self.bytes_s += NEWEST * (now - self.bytes_s);
        self.bytes = bytes;
    }

    /// How long `bytes` more take; `None` if nothing moves.
    fn time_for(&self, bytes: u64) -> Option<Duration> {
        let time = Duration::try_from_secs_f64(bytes as f64 / self.bytes_s).ok();
        time.filter(|time| *time < LONGEST).map(|time| Duration::from_secs(time.as_secs_f64().ceil() as u64))
    }
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
        let style = "{bar:30} {bytes} of {total_bytes} found  {msg}";
        total.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { all, total, rails: BTreeMap::new(), upload, last: Instant::now(), rate: Rate::default() }
    }

    fn update(&mut self, watch: &Watch, progress: &Progress) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        self.total.set_length(progress.expected_bytes());
        self.total.set_position(progress.bytes().min(progress.expected_bytes()));
        self.rate.update(progress.bytes().saturating_sub(progress.resumed_bytes()), seconds);
        let left = progress.expected_bytes().saturating_sub(progress.bytes());
        // Before everything was found, the remaining time is not known.
        let left = self.rate.time_for(left).filter(|_| progress.has_found_all());
        let left = left.map_or(String::new(), |left| format!("  {} left", indicatif::HumanDuration(left)));
        let rate = format!("{}/s", indicatif::BinaryBytes(self.rate.bytes_s as u64));
        let unchanged = match progress.unchanged() {
            0 => String::new(),
            unchanged => format!(", {unchanged} unchanged"),
        };
        self.total.set_message(format!("{rate}{left}  {} files{unchanged}", progress.files()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_what_is_confirmed() {
        let mut rate = Rate::default();
        assert_eq!(rate.time_for(1), None);
        for step in 1..=40 {
            rate.update(step * 200, 0.2);
        }
        assert!((rate.bytes_s - 1000.0).abs() < 1.0, "{rate:?}");
        assert_eq!(rate.time_for(9500), Some(Duration::from_secs(10)));
        for _ in 0..200 {
            rate.update(8000, 0.2);
        }
        assert_eq!(rate.time_for(1 << 40), None, "nothing moves");
    }
}
