//! The display of a unit of work: one live line for each filter, and a summary at the end.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use multirail::pipeline::{CopyStatus, Counts};
use multirail_proto::units::format_size;
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Instant;

/// The most lines on a terminal. JSON output has all filters.
const MAX_LINES: usize = 32;
/// The weight of the newest interval in a displayed rate, which is an exponential average. It
/// follows a change within a second and does not flicker.
const NEWEST: f64 = 0.4;

/// The display of a unit of work.
pub struct View {
    unit: u32,
    units: u32,
    began: Instant,
    /// The counters before the unit of work.
    before: Vec<FilterCounts>,
    /// The interval since the last text output.
    text_interval: Interval,
    /// The interval since the last JSON object.
    json_interval: Interval,
}

/// The time since the last output, with the counters of that time.
struct Interval {
    since: Instant,
    counts: Vec<FilterCounts>,
    rates: Vec<Rates>,
}

#[derive(Clone, Copy, Default)]
struct Rates {
    in_mb_s: f64,
    out_mb_s: f64,
    busy: f64,
}

/// The sum of the counters of a filter's copies.
struct FilterCounts {
    name: String,
    copies: usize,
    hosts: Vec<String>,
    counts: Counts,
}

/// The current rates of a filter.
#[derive(Serialize)]
pub struct FilterNow {
    filter: String,
    copies: usize,
    in_mb_s: f64,
    out_mb_s: f64,
    /// Buffers that it has written and no filter has started to process.
    queued: u64,
    /// The share of the time in which its copies were busy.
    busy: f64,
}

#[derive(Serialize)]
pub struct ProgressRow {
    progress: Progress,
}

#[derive(Serialize)]
struct Progress {
    unit: u32,
    seconds: f64,
    filters: Vec<FilterNow>,
}

/// The result of a unit of work.
#[derive(Serialize)]
pub struct UnitRow {
    unit: u32,
    #[serde(skip)]
    units: u32,
    seconds: f64,
    /// The reason of a failure.
    error: Option<String>,
    filters: Vec<FilterEnd>,
}

#[derive(Serialize)]
struct FilterEnd {
    filter: String,
    copies: usize,
    hosts: Vec<String>,
    buffers_in: u64,
    bytes_in: u64,
    buffers_out: u64,
    bytes_out: u64,
    busy_s: f64,
    waited_in_s: f64,
    waited_out_s: f64,
}

impl View {
    pub fn new(unit: u32, units: u32, status: Vec<CopyStatus>) -> Self {
        let interval = || Interval { since: Instant::now(), counts: by_filter(&status), rates: Vec::new() };
        Self {
            unit,
            units,
            began: Instant::now(),
            before: by_filter(&status),
            text_interval: interval(),
            json_interval: interval(),
        }
    }

    /// One line for the unit and one for each filter, with the rates since the last call.
    pub fn now(&mut self, status: &[CopyStatus]) -> Vec<String> {
        let unit = format!("unit {} of {}, {:.0} s", self.unit, self.units, self.began.elapsed().as_secs_f64());
        let filters = self.text_interval.next(status, NEWEST);
        std::iter::once(unit).chain(filters.iter().map(FilterNow::line)).collect()
    }

    /// The current rates as a JSON object.
    pub fn progress(&mut self, status: &[CopyStatus]) -> ProgressRow {
        let (unit, seconds) = (self.unit, self.began.elapsed().as_secs_f64());
        ProgressRow { progress: Progress { unit, seconds, filters: self.json_interval.next(status, 1.0) } }
    }

    /// The result of the unit, which has ended.
    pub fn end(&self, status: &[CopyStatus], error: Option<String>) -> UnitRow {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let filters = by_filter(status).into_iter().map(|filter| {
            let none = Counts::default();
            let before = self.before.iter().find(|b| b.name == filter.name).map_or(&none, |b| &b.counts);
            let since = |of: fn(&Counts) -> u64| of(&filter.counts).saturating_sub(of(before));
            FilterEnd {
                buffers_in: since(|c| c.buffers_in),
                bytes_in: since(|c| c.bytes_in),
                buffers_out: since(|c| c.buffers_out),
                bytes_out: since(|c| c.bytes_out),
                busy_s: seconds(since(|c| c.busy_ns)),
                waited_in_s: seconds(since(|c| c.waited_in_ns)),
                waited_out_s: seconds(since(|c| c.waited_out_ns)),
                filter: filter.name,
                copies: filter.copies,
                hosts: filter.hosts,
            }
        });
        let (unit, units, seconds) = (self.unit, self.units, self.began.elapsed().as_secs_f64());
        UnitRow { unit, units, seconds, error, filters: filters.collect() }
    }
}

impl Interval {
    fn next(&mut self, status: &[CopyStatus], newest: f64) -> Vec<FilterNow> {
        let seconds = self.since.elapsed().as_secs_f64().max(1e-3);
        let now = by_filter(status);
        let newest = if self.rates.is_empty() { 1.0 } else { newest };
        self.rates.resize(now.len(), Rates::default());
        let none = Counts::default();
        let mut filters = Vec::new();
        for (filter, rates) in now.iter().zip(&mut self.rates) {
            let before = self.counts.iter().find(|b| b.name == filter.name).map_or(&none, |b| &b.counts);
            let since = |of: fn(&Counts) -> u64| of(&filter.counts).saturating_sub(of(before)) as f64;
            let follow = |rate: &mut f64, now: f64| *rate += newest * (now - *rate);
            follow(&mut rates.in_mb_s, since(|c| c.bytes_in) / 1e6 / seconds);
            follow(&mut rates.out_mb_s, since(|c| c.bytes_out) / 1e6 / seconds);
            follow(&mut rates.busy, since(|c| c.busy_ns) / 1e9 / seconds / filter.copies.max(1) as f64);
            filters.push(FilterNow {
                filter: filter.name.clone(),
                copies: filter.copies,
                in_mb_s: rates.in_mb_s,
                out_mb_s: rates.out_mb_s,
                queued: filter.counts.queued,
                busy: rates.busy.min(1.0),
            });
        }
        (self.since, self.counts) = (Instant::now(), now);
        filters
    }
}

fn by_filter(status: &[CopyStatus]) -> Vec<FilterCounts> {
    let mut filters: Vec<FilterCounts> = Vec::new();
    for copy in status {
        match filters.last_mut().filter(|f| f.name == copy.filter) {
            Some(filter) => {
                filter.copies += 1;
                filter.counts = filter.counts.plus(copy.counts);
                if !filter.hosts.contains(&copy.host) {
                    filter.hosts.push(copy.host.clone());
                }
            }
            None => filters.push(FilterCounts {
                name: copy.filter.clone(),
                copies: 1,
                hosts: vec![copy.host.clone()],
                counts: copy.counts,
            }),
        }
    }
    filters
}

impl FilterNow {
    fn line(&self) -> String {
        format!(
            "  {:<16} x{:<3} in {:>8.1} MB/s  out {:>8.1} MB/s  queued {:>4}  busy {:>3.0} %",
            self.filter,
            self.copies,
            self.in_mb_s,
            self.out_mb_s,
            self.queued,
            self.busy * 100.0
        )
    }
}

impl UnitRow {
    pub fn text(&self) -> String {
        let mut lines = vec![format!("unit {} of {}: {:.2} s", self.unit, self.units, self.seconds)];
        for f in &self.filters {
            let share = 100.0 * f.busy_s / self.seconds.max(1e-9) / f.copies.max(1) as f64;
            let mb_s = |bytes: u64| bytes as f64 / 1e6 / self.seconds.max(1e-9);
            let (got, gave) = (format_size(f.bytes_in), format_size(f.bytes_out));
            lines.push(format!(
                "  {:<16} x{:<3} in {got:>10} {:>8.1} MB/s  out {gave:>10} {:>8.1} MB/s  busy {:>3.0} %  {}",
                f.filter,
                f.copies,
                mb_s(f.bytes_in),
                mb_s(f.bytes_out),
                share.min(100.0),
                f.hosts.join(" ")
            ));
        }
        lines.join("\n")
    }
}

/// The lines of a running unit on a terminal. They disappear when the value is dropped.
pub struct Screen(Option<(MultiProgress, Vec<ProgressBar>)>);

impl Screen {
    pub fn new(json: bool) -> Self {
        let shows = !json && std::io::stderr().is_terminal();
        Self(shows.then(|| (MultiProgress::with_draw_target(ProgressDrawTarget::stderr()), Vec::new())))
    }

    pub fn show(&mut self, lines: impl FnOnce() -> Vec<String>) {
        let Some((all, bars)) = &mut self.0 else { return };
        for (i, line) in lines().into_iter().take(MAX_LINES).enumerate() {
            if bars.len() <= i {
                let bar = all.add(ProgressBar::new_spinner());
                let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
                bar.set_style(style);
                bars.push(bar);
            }
            bars[i].set_message(line);
            bars[i].tick();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some((all, _)) = &self.0 {
            let _ = all.clear();
        }
    }
}
