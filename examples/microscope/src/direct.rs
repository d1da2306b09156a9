//! A picture without a pipeline: one pixel after the other. The filters must make the same bytes.

use crate::filters::Window;
use crate::slide::Slide;

/// The averaged pixels of a window.
pub fn picture(slide: &Slide, window: Window) -> anyhow::Result<Vec<u8>> {
    let (width, height) = (window.width.div_ceil(window.factor), window.height.div_ceil(window.factor));
    let mut sums = vec![[0u32; 4]; width as usize * height as usize];
    let mut line = Vec::new();
    for y in 0..window.height {
        slide.read_line(window.x, window.y + y, window.width, &mut line)?;
        let row = (y / window.factor * width) as usize;
        for (x, pixel) in line.chunks_exact(3).enumerate() {
            let sum = &mut sums[row + x / window.factor as usize];
            (0..3).for_each(|color| sum[color] += u32::from(pixel[color]));
            sum[3] += 1;
        }
    }
    Ok(sums.iter().flat_map(|sum| [0, 1, 2].map(|color| (sum[color] / sum[3]) as u8)).collect())
}
