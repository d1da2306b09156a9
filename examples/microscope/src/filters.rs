//! The kinds of filters of the microscope.

use crate::slide::Slide;
use anyhow::ensure;
use multirail::pipeline::{CopyInfo, Failure, Filters, Io, UnitOfWork};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// A window: pixels of the slide, of which `factor` by `factor` are one pixel of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
    pub factor: u32,
}

/// The area of a piece: in pixels of the slide after clipping, of the picture after subsampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

/// A query for the size of the slide instead of a window. The answer is the tag of an empty buffer.
pub const SHAPE: &[u8] = b"shape";
/// Size of the encoded area before a piece's pixels.
const AREA_BYTES: usize = 16;
/// Size of a summed pixel: the number of pixels and the sums of red, green and blue, each a `u32`.
pub const SUM_BYTES: usize = 16;

impl Area {
    pub fn encode(self, body: &mut Vec<u8>) {
        for number in [self.x, self.y, self.width, self.height] {
            body.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// The area and its pixels, of `bytes_each` bytes each.
    pub fn decode(body: &[u8], bytes_each: usize) -> anyhow::Result<(Self, &[u8])> {
        ensure!(body.len() >= AREA_BYTES, "a piece of {} bytes", body.len());
        let (head, pixels) = body.split_at(AREA_BYTES);
        let mut numbers = head.chunks_exact(4).map(|n| u32::from_le_bytes([n[0], n[1], n[2], n[3]]));
        let mut next = || numbers.next().unwrap_or(0);
        let area = Self { x: next(), y: next(), width: next(), height: next() };
        let wanted = u64::from(area.width) * u64::from(area.height) * bytes_each as u64;
        ensure!(pixels.len() as u64 == wanted, "a piece of {} bytes instead of {wanted}", pixels.len());
        Ok((area, pixels))
    }
}

impl Window {
    pub fn of(unit: &UnitOfWork) -> anyhow::Result<Self> {
        let window: Self = serde_json::from_slice(&unit.query)?;
        ensure!(window.factor > 0, "a window with a factor of 0");
        Ok(window)
    }
}

/// All kinds, for slides below `root`.
pub fn all(root: PathBuf) -> Filters {
    Filters::none()
        .with("clip", move |parameters, _: &CopyInfo| {
            let name = parameters.as_str().ok_or("clip needs the slide's name")?;
            let path = below(&root, Path::new(name))?;
            Ok(move |io: &mut Io<'_>| -> Result<(), Failure> { clip(&path, io) })
        })
        .with("subsample", |_, _: &CopyInfo| {
            Ok(|io: &mut Io<'_>| -> Result<(), Failure> {
                if io.unit().query == SHAPE {
                    return pass_on(io);
                }
                let factor = Window::of(io.unit())?.factor;
                while let Some(received) = io.read()? {
                    let mut body = io.buffer(received.body.len());
                    subsample(&received.body, factor, &mut body)?;
                    io.write(0, received.tag, body)?;
                }
                Ok(())
            })
        })
        .with("view", |_, _: &CopyInfo| {
            Ok(|io: &mut Io<'_>| -> Result<(), Failure> {
                if io.unit().query == SHAPE {
                    return pass_on(io);
                }
                let mut view = View::new(Window::of(io.unit())?);
                while let Some(received) = io.read()? {
                    view.add(&received.body)?;
                }
                // Row by row, since a large picture exceeds the limit of a buffer.
                for (row, body) in view.rows() {
                    io.write(0, row.into(), body)?;
                }
                Ok(())
            })
        })
}

fn pass_on(io: &mut Io<'_>) -> Result<(), Failure> {
    while let Some(received) = io.read()? {
        io.write(0, received.tag, received.body)?;
    }
    Ok(())
}

/// Checks that a slide is below the served folder.
fn below(root: &Path, name: &Path) -> Result<PathBuf, Failure> {
    let inside = name.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if inside {
        Ok(root.join(name))
    } else {
        Err(format!("slide {}: not below the served folder", name.display()).into())
    }
}

fn clip(path: &Path, io: &mut Io<'_>) -> Result<(), Failure> {
    let slide = Slide::open(path)?;
    if io.unit().query == SHAPE {
        let side = slide.shape.side_pixels();
        // One answer is enough.
        return if io.info().copy == 0 { io.write(0, side.into(), Vec::new()) } else { Ok(()) };
    }
    let window = Window::of(io.unit())?;
    let (side, block_pixels) = (slide.shape.side_pixels(), slide.shape.block_pixels);
    let ends = (window.x.checked_add(window.width), window.y.checked_add(window.height));
    let (Some(right), Some(bottom)) = ends else { return Err("a window beyond the slide".into()) };
    if right > side || bottom > side || window.width == 0 || window.height == 0 {
        return Err(
            format!("a window from {}, {} to {right}, {bottom}; the slide has {side}", window.x, window.y).into()
        );
    }
    let (columns, rows) =
        (window.x / block_pixels..=(right - 1) / block_pixels, window.y / block_pixels..=(bottom - 1) / block_pixels);
    let blocks = rows.flat_map(|row| columns.clone().map(move |column| (column, row)));
    let mut block = Vec::new();
    for (column, row) in blocks.skip(io.info().copy).step_by(io.info().copies) {
        // A block is always read as a whole (paper, section 2).
        slide.read(column, row, &mut block)?;
        let (left, top) = (column * block_pixels, row * block_pixels);
        let (x, y) = (window.x.max(left), window.y.max(top));
        let area = Area { x, y, width: right.min(left + block_pixels) - x, height: bottom.min(top + block_pixels) - y };
        let mut body = io.buffer(AREA_BYTES + (area.width * area.height * 3) as usize);
        // From here on, areas are relative to the window.
        Area { x: x - window.x, y: y - window.y, ..area }.encode(&mut body);
        for line in y - top..y - top + area.height {
            let at = ((line * block_pixels + (x - left)) * 3) as usize;
            body.extend_from_slice(&block[at..at + (area.width * 3) as usize]);
        }
        io.write(0, block.len() as u64, body)?;
    }
    Ok(())
}

/// Sums the pixels of the slide for each pixel of the picture. Pixels at the edge of a block are
/// completed by the neighbouring block.
pub fn subsample(piece: &[u8], factor: u32, out: &mut Vec<u8>) -> anyhow::Result<()> {
    let (area, pixels) = Area::decode(piece, 3)?;
    ensure!(area.width > 0 && area.height > 0, "an empty piece");
    let (x, y) = (area.x / factor, area.y / factor);
    let (width, height) = ((area.x + area.width - 1) / factor - x + 1, (area.y + area.height - 1) / factor - y + 1);
    let mut sums = vec![[0u32; 4]; (width * height) as usize];
    for (line, row) in pixels.chunks_exact(area.width as usize * 3).enumerate() {
        let to = (((area.y + line as u32) / factor - y) * width) as usize;
        for (column, pixel) in row.chunks_exact(3).enumerate() {
            let sum = &mut sums[to + ((area.x + column as u32) / factor - x) as usize];
            sum[0] += 1;
            for (color, value) in pixel.iter().enumerate() {
                sum[1 + color] += u32::from(*value);
            }
        }
    }
    Area { x, y, width, height }.encode(out);
    sums.iter().flatten().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    Ok(())
}

/// A picture that is being summed.
pub struct View {
    width: u32,
    height: u32,
    sums: Vec<[u32; 4]>,
}

impl View {
    pub fn new(window: Window) -> Self {
        let (width, height) = (window.width.div_ceil(window.factor), window.height.div_ceil(window.factor));
        Self { width, height, sums: vec![[0; 4]; width as usize * height as usize] }
    }

    pub fn add(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        let (area, sums) = Area::decode(piece, SUM_BYTES)?;
        let fits = area.x + area.width <= self.width && area.y + area.height <= self.height;
        ensure!(fits, "a piece beyond the picture");
        for (i, sum) in sums.chunks_exact(SUM_BYTES).enumerate() {
            let (x, y) = (area.x + i as u32 % area.width, area.y + i as u32 / area.width);
            let to = &mut self.sums[(y * self.width + x) as usize];
            for (number, bytes) in to.iter_mut().zip(sum.chunks_exact(4)) {
                *number += u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        Ok(())
    }

    /// The rows that have pixels, as one piece each.
    fn rows(&self) -> impl Iterator<Item = (u32, Vec<u8>)> {
        self.sums.chunks_exact(self.width as usize).enumerate().filter(|(_, row)| row.iter().any(|s| s[0] > 0)).map(
            |(y, row)| {
                let mut body = Vec::with_capacity(AREA_BYTES + row.len() * SUM_BYTES);
                Area { x: 0, y: y as u32, width: self.width, height: 1 }.encode(&mut body);
                row.iter().flatten().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
                (y as u32, body)
            },
        )
    }

    /// The averaged pixels.
    pub fn pixels(&self) -> Vec<u8> {
        let average = |sum: &[u32; 4]| [1, 2, 3].map(|color| (sum[color] / sum[0].max(1)) as u8);
        self.sums.iter().flat_map(average).collect()
    }
}
