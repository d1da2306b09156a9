//! Which files were not changed for some time.
//!
//! The clock of this host may be wrong, or jump. Change times are those of the file system's clock,
//! which is another host's on a network file system. So what looks old by the own clock is compared
//! with the change time of a file that is made now.

use crate::dir::Dir;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// The ages of files in one folder.
#[derive(Debug)]
pub struct Ages<'a> {
    dir: &'a Dir,
    /// Makes a file without a name in the folder.
    make: fn(&Dir) -> io::Result<File>,
    now_s: i64,
    /// The file system's time, if it was needed.
    files_now_s: Option<i64>,
}

impl<'a> Ages<'a> {
    /// Ages as of now. `make` makes a file in the folder and removes its name.
    pub(super) fn of(dir: &'a Dir, make: fn(&Dir) -> io::Result<File>) -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { dir, make, now_s: now.as_secs() as i64, files_now_s: None }
    }

    /// Whether a file with the change time `changed_s` was not changed for `age`, by both clocks.
    /// Every file is older than no time.
    pub fn is_old(&mut self, changed_s: i64, age: Duration) -> bool {
        let is_past = |now_s: i64| changed_s <= now_s.saturating_sub(age.as_secs() as i64);
        age.is_zero() || (is_past(self.now_s) && is_past(self.files_now_s()))
    }

    /// Where no file can be made, the time of this host's clock has to do.
    fn files_now_s(&mut self) -> i64 {
        *self.files_now_s.get_or_insert_with(|| {
            let made = (self.make)(self.dir).and_then(|file| file.metadata());
            made.map_or(self.now_s, |stat| stat.ctime())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Temp;
    use std::ffi::OsStr;

    const DAY_S: i64 = 24 * 3600;

    #[test]
    fn a_wrong_clock_makes_no_file_old() {
        let temp = Temp::new();
        let dir = temp.dir();
        let make = |dir: &Dir| {
            let file = dir.create(OsStr::new("clock"))?;
            dir.remove_file(OsStr::new("clock")).map(|()| file)
        };
        let now_s = Ages::of(&dir, make).now_s;
        let day = Duration::from_secs(DAY_S as u64);
        for (clock_s, changed_s, is_old) in [
            (now_s, now_s - 2 * DAY_S, true),
            (now_s, now_s - DAY_S / 2, false),
            // Ten years ahead.
            (now_s + 3650 * DAY_S, now_s - 2 * DAY_S, true),
            (now_s + 3650 * DAY_S, now_s - DAY_S / 2, false),
            // A year behind. What is old stays for a year.
            (now_s - 365 * DAY_S, now_s - 2 * DAY_S, false),
            (now_s - 365 * DAY_S, now_s - 367 * DAY_S, true),
        ] {
            let mut ages = Ages { now_s: clock_s, ..Ages::of(&dir, make) };
            assert_eq!(ages.is_old(changed_s, day), is_old, "{clock_s} {changed_s}");
            assert!(ages.is_old(changed_s, Duration::ZERO));
        }
        assert_eq!(temp.names(), [""; 0]);
    }
}
