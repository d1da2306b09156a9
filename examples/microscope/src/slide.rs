//! A slide file: a header, then square blocks of RGB pixels, row by row.

use anyhow::{Context, ensure};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: [u8; 8] = *b"mrslide1";
const HEADER_BYTES: u64 = 16;
/// Largest size of a block in pixels, in each direction.
const MAX_BLOCK_PIXELS: u32 = 4096;
/// Most blocks in each direction.
const MAX_BLOCKS: u32 = 4096;
/// Largest difference in brightness between a block and the picture, of 256.
const SHADES: i32 = 24;

/// The number of blocks in each direction, and the size of a block in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub blocks: u32,
    pub block_pixels: u32,
}

/// An open slide.
pub struct Slide {
    file: File,
    pub shape: Shape,
}

impl Shape {
    pub fn side_pixels(self) -> u32 {
        self.blocks * self.block_pixels
    }

    pub fn block_bytes(self) -> usize {
        self.block_pixels as usize * self.block_pixels as usize * 3
    }
}

impl Slide {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = || format!("slide {}", path.display());
        let file = File::open(path).with_context(shown)?;
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).with_context(shown)?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let shape = Shape { blocks: number(8), block_pixels: number(12) };
        ensure!(header[..8] == MAGIC, "{} is not a slide; make one with `microscope grow`", path.display());
        let sane = (1..=MAX_BLOCKS).contains(&shape.blocks) && (1..=MAX_BLOCK_PIXELS).contains(&shape.block_pixels);
        ensure!(sane, "{}: {} blocks of {} pixels", path.display(), shape.blocks, shape.block_pixels);
        let wanted = HEADER_BYTES + u64::from(shape.blocks).pow(2) * shape.block_bytes() as u64;
        let length = file.metadata().with_context(shown)?.len();
        ensure!(length == wanted, "{} has {length} bytes instead of {wanted}; grow it again", path.display());
        Ok(Self { file, shape })
    }

    /// Reads the pixels of a block.
    pub fn read(&self, column: u32, row: u32, block: &mut Vec<u8>) -> anyhow::Result<()> {
        block.resize(self.shape.block_bytes(), 0);
        let number = u64::from(row) * u64::from(self.shape.blocks) + u64::from(column);
        let at = HEADER_BYTES + number * self.shape.block_bytes() as u64;
        self.file.read_exact_at(block, at).with_context(|| format!("block {column}, {row} of the slide"))
    }

    /// Reads a part of one line, across blocks.
    pub fn read_line(&self, x: u32, y: u32, width: u32, line: &mut Vec<u8>) -> anyhow::Result<()> {
        let side = self.shape.block_pixels;
        line.resize(width as usize * 3, 0);
        let (mut x, mut rest) = (x, &mut line[..]);
        while !rest.is_empty() {
            let (part, later) = rest.split_at_mut(rest.len().min((side - x % side) as usize * 3));
            let block = u64::from(y / side) * u64::from(self.shape.blocks) + u64::from(x / side);
            let within = u64::from(y % side * side + x % side) * 3;
            let at = HEADER_BYTES + block * self.shape.block_bytes() as u64 + within;
            self.file.read_exact_at(part, at).with_context(|| format!("pixel {x}, {y} of the slide"))?;
            x += part.len() as u32 / 3;
            rest = later;
        }
        Ok(())
    }
}

/// Makes a slide of `times` by `times` copies of a picture.
pub fn grow(picture: &Path, slide: &Path, times: u32) -> anyhow::Result<Shape> {
    let shown = || format!("picture {}", picture.display());
    let file = BufReader::new(File::open(picture).with_context(shown)?);
    let mut reader = png::Decoder::new(file).read_info().with_context(shown)?;
    let mut pixels = vec![0; reader.output_buffer_size().with_context(shown)?];
    let info = reader.next_frame(&mut pixels).with_context(shown)?;
    let rgb = info.color_type == png::ColorType::Rgb && info.bit_depth == png::BitDepth::Eight;
    ensure!(rgb && info.width == info.height, "{} is not a square of RGB pixels of 8 bits", picture.display());
    let shape = Shape { blocks: times, block_pixels: info.width };
    ensure!((1..=MAX_BLOCKS).contains(&times), "--times {times}: 1 to {MAX_BLOCKS}");
    let shown = || format!("slide {}", slide.display());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(slide).with_context(shown)?);
    out.write_all(&MAGIC).with_context(shown)?;
    out.write_all(&times.to_le_bytes()).and_then(|()| out.write_all(&info.width.to_le_bytes())).with_context(shown)?;
    for row in 0..times {
        for column in 0..times {
            let block = laid(&pixels, info.width as usize, column, row);
            out.write_all(&block).with_context(shown)?;
        }
    }
    out.flush().with_context(shown)?;
    Ok(shape)
}

/// The block at a position: the picture, mirrored so that edges match, with its own brightness.
fn laid(picture: &[u8], side: usize, column: u32, row: u32) -> Vec<u8> {
    let shade = ((column * 37 + row * 101) % (2 * SHADES as u32 + 1)) as i32 - SHADES;
    let mut block = Vec::with_capacity(picture.len());
    for y in 0..side {
        let y = if row % 2 == 1 { side - 1 - y } else { y };
        for x in 0..side {
            let x = if column % 2 == 1 { side - 1 - x } else { x };
            let at = (y * side + x) * 3;
            block.extend(picture[at..at + 3].iter().map(|p| (i32::from(*p) + shade).clamp(0, 255) as u8));
        }
    }
    block
}
