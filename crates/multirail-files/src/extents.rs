//! The data of a sparse file: what is no hole.

use super::pieces::{MAX_PIECES, Pieces};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The data of `file`, which has `total_bytes`. A hole that is too short to be worth a range of its
/// own counts as data. A file system that knows no holes has none.
pub(super) fn data_of(file: &File, total_bytes: u64) -> Pieces {
    let mut merger = Merger::default();
    let mut at = 0;
    while at < total_bytes {
        let Ok(Some(start)) = seek(file, at, libc::SEEK_DATA) else { break };
        let end = seek(file, start, libc::SEEK_HOLE).ok().flatten().unwrap_or(total_bytes);
        // A writer may have changed the file meanwhile. The check after sending finds that.
        let range = start.min(total_bytes)..end.min(total_bytes);
        if range.end <= at {
            break;
        }
        at = range.end;
        merger.add(range);
    }
    Pieces::new(merger.ranges)
}

/// The next data or hole at `offset` or behind it; `None` if there is no data any more.
fn seek(file: &File, offset: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and no memory is passed.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Joins ranges with a short hole between them, so that there are at most [`MAX_PIECES`].
#[derive(Debug, Default)]
struct Merger {
    ranges: Vec<Range<u64>>,
    shortest_hole_bytes: u64,
}

impl Merger {
    fn add(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if range.start - last.end <= self.shortest_hole_bytes => last.end = range.end,
            _ => self.ranges.push(range),
        }
        while self.ranges.len() > MAX_PIECES {
            self.shortest_hole_bytes = (2 * self.shortest_hole_bytes).max(4096);
            for range in std::mem::take(&mut self.ranges) {
                match self.ranges.last_mut() {
                    Some(last) if range.start - last.end <= self.shortest_hole_bytes => last.end = range.end,
                    _ => self.ranges.push(range),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_holes_of_a_file_are_left_out() {
        let path = std::env::temp_dir().join(format!("multirail-extents-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(10 << 20).unwrap();
        file.write_all_at(&[1; 5], 3 << 20).unwrap();
        let data = data_of(&file, 10 << 20);
        assert!(data.bytes() <= 1 << 20 && data.ranges(0..data.bytes()).any(|r| r.contains(&(3 << 20))), "{data:?}");
        file.set_len(0).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(data_of(&file, 1 << 20).bytes(), 0);
    }

    #[test]
    fn many_holes_are_joined() {
        let mut merger = Merger::default();
        for number in 0..100_000_u64 {
            merger.add(number * 8192..number * 8192 + 4096);
        }
        assert!(merger.ranges.len() <= MAX_PIECES);
        for number in 0..100_000_u64 {
            let start = number * 8192;
            let at = merger.ranges.partition_point(|range| range.end <= start);
            assert!(merger.ranges[at].start <= start && start + 4096 <= merger.ranges[at].end, "{number}");
        }
    }
}
