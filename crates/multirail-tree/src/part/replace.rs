//! Links that take the place of a file at once.

use super::{MAX_PARTS_OF_A_NAME, part_name};
use crate::dir::Dir;
use std::ffi::OsStr;
use std::io;

/// Lets `make` create a link, and gives it the name `name` in `dir`. What had that name is replaced
/// at once: the name is never missing.
///
/// `make` is told the name under which it creates the link. That is the name of a part, so that
/// [`remove_abandoned`](super::remove_abandoned) removes what a killed process left.
///
/// # Errors
///
/// Those of `make`, or if the link cannot be renamed. Nothing has changed then.
pub fn replace_by_link(dir: &Dir, name: &OsStr, mut make: impl FnMut(&OsStr) -> io::Result<()>) -> io::Result<()> {
    for number in 0..MAX_PARTS_OF_A_NAME {
        let part_name = part_name(name, number);
        match make(&part_name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => match made.map(|()| dir.rename(&part_name, name)) {
                // A link has no lock. Another process has taken it for abandoned.
                Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
                replaced => {
                    // After a rename the part has no name any more. Between two hard links of one
                    // file, rename(2) does nothing.
                    _ = dir.remove_file(&part_name);
                    return replaced.flatten();
                }
            },
        }
    }
    Err(io::Error::other(format!("{MAX_PARTS_OF_A_NAME} unfinished files of that name exist already")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::remove_abandoned;
    use crate::testing::Temp;
    use std::time::Duration;

    /// A directory with a file, and the file's name.
    fn old_file() -> (Temp, Dir, &'static OsStr) {
        let (temp, name) = (Temp::new(), OsStr::new("a"));
        std::fs::write(temp.join(name), "old").unwrap();
        let dir = temp.dir();
        (temp, dir, name)
    }

    #[test]
    fn the_name_is_there_while_the_link_is_made() {
        let (temp, dir, a) = old_file();
        let before = dir.stat_of(a).unwrap().unwrap().inode;
        replace_by_link(&dir, a, |part| {
            dir.make_symlink(b"x", part)?;
            assert_eq!(dir.stat_of(a)?.unwrap().inode, before);
            Ok(())
        })
        .unwrap();
        assert_eq!(dir.read_link(a).unwrap(), b"x");
        assert_eq!(temp.names(), ["a"]);
    }

    #[test]
    fn a_link_that_cannot_be_made_changes_nothing() {
        let (temp, dir, a) = old_file();
        let made = replace_by_link(&dir, a, |part| {
            dir.make_symlink(b"x", part)?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read(temp.join(a)).unwrap(), b"old");
        assert_eq!(temp.names(), ["a"]);
    }

    /// `rename` does nothing between them.
    #[test]
    fn a_hard_link_of_the_same_file_leaves_no_part() {
        let (temp, dir, a) = old_file();
        replace_by_link(&dir, a, |part| dir.hard_link(a, &dir, part)).unwrap();
        assert_eq!(temp.names(), ["a"]);
    }

    #[test]
    fn a_link_that_another_process_removes_is_made_again() {
        let (temp, dir, a) = old_file();
        let mut removals = 3;
        replace_by_link(&dir, a, |part| {
            dir.make_symlink(b"x", part)?;
            if removals > 0 {
                removals -= 1;
                remove_abandoned(&dir, Duration::ZERO, usize::MAX)?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(dir.read_link(a).unwrap(), b"x");
        assert_eq!(temp.names(), ["a"]);
    }

    #[test]
    fn what_a_killed_process_left_does_no_harm_and_is_removed() {
        let (temp, dir, a) = old_file();
        dir.make_symlink(b"left", &part_name(a, 0)).unwrap();
        replace_by_link(&dir, a, |part| dir.make_symlink(b"x", part)).unwrap();
        assert_eq!(dir.read_link(a).unwrap(), b"x");
        assert_eq!(temp.names().len(), 2);
        remove_abandoned(&dir, Duration::from_hours(1), usize::MAX).unwrap();
        assert_eq!(temp.names().len(), 2, "too young");
        remove_abandoned(&dir, Duration::ZERO, usize::MAX).unwrap();
        assert_eq!(temp.names(), ["a"]);
    }
}
