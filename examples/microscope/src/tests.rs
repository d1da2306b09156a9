//! What one sees is what is there.

use crate::filters::Window;
use crate::frame::Scope;
use crate::slide::{self, Slide};
use multirail::Config;
use std::path::{Path, PathBuf};

/// A folder for one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("microscope-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Four by four pictures of 40 pixels.
fn small_slide(folder: &Path) -> PathBuf {
    let picture = folder.join("picture.png");
    let file = std::fs::File::create(&picture).unwrap();
    let mut encoder = png::Encoder::new(file, 40, 40);
    encoder.set_color(png::ColorType::Rgb);
    let pixels: Vec<u8> = (0..40 * 40 * 3u32).map(|i| (i * 7 % 251) as u8).collect();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    let path = folder.join("slide");
    slide::grow(&picture, &path, 4).unwrap();
    path
}

/// One pixel after the other.
fn directly(slide: &Slide, window: Window) -> Vec<u8> {
    let side = slide.shape.block_pixels;
    let (width, height) = (window.width.div_ceil(window.factor), window.height.div_ceil(window.factor));
    let mut sums = vec![[0u32; 4]; (width * height) as usize];
    let mut block = Vec::new();
    for y in 0..window.height {
        for x in 0..window.width {
            let (sx, sy) = (window.x + x, window.y + y);
            slide.read(sx / side, sy / side, &mut block).unwrap();
            let at = ((sy % side * side + sx % side) * 3) as usize;
            let sum = &mut sums[(y / window.factor * width + x / window.factor) as usize];
            sum[3] += 1;
            (0..3).for_each(|c| sum[c] += u32::from(block[at + c]));
        }
    }
    sums.iter().flat_map(|s| [0, 1, 2].map(|c| (s[c] / s[3]) as u8)).collect()
}

#[test]
fn pictures_are_those_of_a_simple_loop_whatever_the_copies() {
    let folder = Folder::new("pictures");
    let path = small_slide(&folder.0);
    let slide = Slide::open(&path).unwrap();
    for copies in [1, 3] {
        let mut scope = Scope::start(Config::default(), &path, &[], None, copies).unwrap();
        assert_eq!(scope.side_pixels().unwrap(), 160);
        for (x, y, width, height, factor) in
            [(0, 0, 160, 160, 1), (0, 0, 160, 160, 8), (35, 7, 51, 90, 3), (120, 120, 1, 1, 5)]
        {
            let window = Window { x, y, width, height, factor };
            let picture = scope.complete(window).unwrap();
            assert!(picture.pixels() == directly(&slide, window), "{window:?} with {copies} copies");
        }
        let beyond = Window { x: 100, y: 0, width: 61, height: 1, factor: 1 };
        assert!(scope.complete(beyond).err().unwrap().to_string().contains("the slide has 160"));
    }
}

#[test]
fn a_picture_that_moved_is_the_one_of_its_place() {
    let folder = Folder::new("moved");
    let path = small_slide(&folder.0);
    let slide = Slide::open(&path).unwrap();
    let mut scope = Scope::start(Config::default(), &path, &[], None, 2).unwrap();
    let window = Window { x: 10, y: 20, width: 60, height: 60, factor: 2 };
    let first = scope.complete(window).unwrap();
    for (right, down) in [(8, 0), (0, 6), (20, 30), (60, 60), (1, 0)] {
        let moved = scope.moved(&first, right, down).unwrap();
        let there = Window { x: 10 + right / 2 * 2, y: 20 + down / 2 * 2, ..window };
        assert_eq!(moved.window, there);
        assert!(moved.pixels() == directly(&slide, there), "by {right}, {down}");
        assert!(moved.read_bytes < first.read_bytes || right.max(down) >= 60);
    }
}

#[test]
fn what_is_no_slide_is_told() {
    let folder = Folder::new("none");
    let path = small_slide(&folder.0);
    let bytes = std::fs::read(&path).unwrap();
    let tell = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        format!("{:#}", Slide::open(&path).err().unwrap())
    };
    assert!(tell(&bytes[..bytes.len() - 1]).contains("grow it again"));
    assert!(tell(b"not a slide at all").contains("is not a slide"));
    assert!(tell(b"").contains("failed to fill"));
}
