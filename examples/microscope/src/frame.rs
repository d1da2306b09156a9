//! The client: asks the pipeline for windows, and assembles pictures.

use crate::filters::{self, SHAPE, View, Window};
use anyhow::{Context, ensure};
use multirail::Config;
use multirail::pipeline::edge::Transport;
use multirail::pipeline::{Failure, Group, Io, RunningGroup, StreamOptions};
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const CLIP: &str = "clip";

/// A running group of filters for one slide.
pub struct Scope {
    running: RunningGroup,
    collected: Arc<Mutex<Collected>>,
}

#[derive(Default)]
struct Collected {
    /// `None` for a query for the size of the slide.
    view: Option<View>,
    side_pixels: u32,
}

/// A picture of a window.
pub struct Picture {
    pub window: Window,
    width: u32,
    pixels: Vec<u8>,
    pub took: Duration,
    /// Bytes that were cut out of the slide.
    pub read_bytes: u64,
}

impl Scope {
    pub fn start(
        config: Config,
        slide: &Path,
        hosts: &[String],
        transport: Option<Transport>,
        copies: usize,
    ) -> anyhow::Result<Self> {
        let mut group = Group::new(config);
        let names: Vec<String> = (1..=hosts.len()).map(|i| format!("h{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (name, address) in names.iter().zip(hosts) {
            group.host(name, address);
        }
        // In this process, the path may be anywhere.
        let (root, name) = match (hosts.is_empty(), slide.file_name()) {
            (true, Some(name)) => (slide.parent().unwrap_or(Path::new("")).to_owned(), Path::new(name)),
            _ => (std::path::PathBuf::new(), slide),
        };
        let name = name.to_str().context("a slide's name in another encoding than UTF-8")?;
        let known = filters::all(root);
        for (filter, parameters) in [(CLIP, json!(name)), ("subsample", json!(null)), ("view", json!(null))] {
            group.filter_of_kind(filter, filter, parameters, &known).copies(copies).on(&names);
        }
        let collected = Arc::<Mutex<Collected>>::default();
        let collects = collected.clone();
        group.filter("frame", move |_| {
            let collected = collects.clone();
            move |io: &mut Io<'_>| -> Result<(), Failure> {
                let window = Window::of(io.unit()).ok();
                let mut view = window.map(View::new);
                let mut side_pixels = 0;
                while let Some(received) = io.read()? {
                    match &mut view {
                        Some(view) => view.add(&received.body)?,
                        None => side_pixels = received.tag as u32,
                    }
                }
                *collected.lock().unwrap_or_else(PoisonError::into_inner) = Collected { view, side_pixels };
                Ok(())
            }
        });
        let options = StreamOptions::default().transport(transport);
        for (from, to) in [(CLIP, "subsample"), ("subsample", "view"), ("view", "frame")] {
            group.stream_with(from, to, options);
        }
        Ok(Self { running: group.start()?, collected })
    }

    fn ask(&mut self, query: &[u8]) -> anyhow::Result<Collected> {
        self.running.run(query)?;
        Ok(std::mem::take(&mut *self.collected.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The size of the slide in pixels, in each direction.
    pub fn side_pixels(&mut self) -> anyhow::Result<u32> {
        let side = self.ask(SHAPE)?.side_pixels;
        ensure!(side > 0, "no filter has reported the size of the slide");
        Ok(side)
    }

    fn clipped_bytes(&self) -> u64 {
        self.running.status().iter().filter(|s| s.filter == CLIP).map(|s| s.counts.bytes_out).sum()
    }

    /// A complete picture of a window.
    pub fn complete(&mut self, window: Window) -> anyhow::Result<Picture> {
        let (since, before) = (Instant::now(), self.clipped_bytes());
        let view = self.ask(&serde_json::to_vec(&window)?)?.view.context("no picture came")?;
        let pixels = view.pixels();
        let read_bytes = self.clipped_bytes().saturating_sub(before);
        Ok(Picture { window, width: window.width.div_ceil(window.factor), pixels, took: since.elapsed(), read_bytes })
    }

    /// A picture moved to the right and down by whole pixels. Only what comes into view is
    /// requested.
    pub fn moved(&mut self, from: &Picture, right: u32, down: u32) -> anyhow::Result<Picture> {
        let since = Instant::now();
        let old = from.window;
        let by = (right / old.factor, down / old.factor);
        let window = Window { x: old.x + by.0 * old.factor, y: old.y + by.1 * old.factor, ..old };
        let (width, height) = (from.width, from.pixels.len() as u32 / 3 / from.width);
        let (kept_width, kept_height) = (width.saturating_sub(by.0), height.saturating_sub(by.1));
        let mut pixels = vec![0; from.pixels.len()];
        let place = |x: u32, y: u32| ((y * width + x) * 3) as usize;
        for y in 0..kept_height {
            let line = (kept_width * 3) as usize;
            let at = place(by.0, y + by.1);
            pixels[place(0, y)..place(0, y) + line].copy_from_slice(&from.pixels[at..at + line]);
        }
        let mut read_bytes = 0;
        let kept = (kept_width * old.factor, kept_height * old.factor);
        let right_of = Window { x: window.x + kept.0, width: window.width - kept.0.min(window.width), ..window };
        let below = Window {
            y: window.y + kept.1,
            width: kept.0.min(window.width),
            height: window.height - kept.1.min(window.height),
            ..window
        };
        for (strip, x, y) in [(right_of, kept_width, 0), (below, 0, kept_height)] {
            if strip.width == 0 || strip.height == 0 {
                continue;
            }
            let new = self.complete(strip)?;
            read_bytes += new.read_bytes;
            for (line, row) in new.pixels.chunks_exact(new.width as usize * 3).enumerate() {
                let at = place(x, y + line as u32);
                pixels[at..at + row.len()].copy_from_slice(row);
            }
        }
        Ok(Picture { window, width, pixels, took: since.elapsed(), read_bytes })
    }
}

impl Picture {
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let shown = || format!("picture {}", path.display());
        let file = BufWriter::new(File::create(path).with_context(shown)?);
        let mut encoder = png::Encoder::new(file, self.width, self.pixels.len() as u32 / 3 / self.width);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header().and_then(|mut w| w.write_image_data(&self.pixels)).with_context(shown)
    }

    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}
