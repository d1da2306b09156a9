//! Pictures are compared with the slide.

use crate::direct;
use crate::filters::Window;
use crate::frame::Scope;
use crate::slide::{self, Slide};
use multirail::Config;
use std::path::{Path, PathBuf};

/// A folder that is removed when it is dropped.
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

#[test]
fn pictures_equal_a_simple_loop_with_any_number_of_copies() {
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
            assert!(picture.pixels() == direct::picture(&slide, window).unwrap(), "{window:?} with {copies} copies");
        }
        let beyond = Window { x: 100, y: 0, width: 61, height: 1, factor: 1 };
        assert!(scope.complete(beyond).err().unwrap().to_string().contains("the slide has 160"));
    }
}

/// The simple loop reads lines; here, every pixel is looked up in its block.
#[test]
fn the_simple_loop_reads_the_pixels_of_the_blocks() {
    let folder = Folder::new("loop");
    let slide = Slide::open(&small_slide(&folder.0)).unwrap();
    let window = Window { x: 35, y: 70, width: 90, height: 15, factor: 1 };
    let mut block = Vec::new();
    let mut expected = Vec::new();
    for (y, x) in (70..85).flat_map(|y| (35..125).map(move |x| (y, x))) {
        slide.read(x / 40, y / 40, &mut block).unwrap();
        let at = ((y % 40 * 40 + x % 40) * 3) as usize;
        expected.extend_from_slice(&block[at..at + 3]);
    }
    assert!(direct::picture(&slide, window).unwrap() == expected);
}

#[test]
fn a_moved_picture_equals_one_of_its_window() {
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
        assert!(moved.pixels() == direct::picture(&slide, there).unwrap(), "by {right}, {down}");
        assert!(moved.read_bytes < first.read_bytes || right.max(down) >= 60);
    }
}

#[test]
fn a_file_that_is_no_slide_is_refused() {
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
