//! Notes of the folders that copies write to, for the case that their server is killed.
//!
//! A killed server leaves unfinished files behind. A walk through the served tree would find them,
//! but takes as long as the tree is large. So each copy has a note: a file in the hidden folder
//! `.multirail-copies.multirail-part` of the served folder, with the path of the folder that the
//! copy writes to at the moment. The copy locks its note, and removes it at its end. A note without a
//! lock is that of a killed server. A server that starts removes the abandoned parts in the folders of
//! these notes, and the notes ([`clean`]). A copy that completes does so for the notes of its own
//! destination ([`Note::finish`]). A note stays as long as its folder has a part that can be continued.
//!
//! A client may be confined to a folder below the served one ([`Root`]). Its notes have that folder and
//! the path below it, so that a note leads no further than its client.
//!
//! Notes are not synced to disk. After a crash of the host, parts are removed as [`crate::part`]
//! says.

use crate::dir::Dir;
use crate::names;
use crate::part;
use crate::root::Root;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of the notes.
const FOLDER: &str = ".multirail-copies.multirail-part";
/// The most notes that [`clean`] reads.
const MAX_NOTES: usize = 1024;
/// Another attempt is needed if another copy is just removing the folder, or if another server takes
/// the new note for an abandoned one.
const TRIES: u32 = 16;

/// The note of a copy. Dropping it removes it.
#[derive(Debug)]
pub struct Note {
    /// The folder of the client.
    root: Root,
    served: Dir,
    folder: Dir,
    name: OsString,
    file: File,
}

impl Note {
    /// Begins the note of a copy to somewhere below `root`.
    ///
    /// # Errors
    ///
    /// If the folder of notes cannot be made or written to.
    pub fn begin(root: &Root) -> io::Result<Note> {
        let served = root.open_served()?;
        for _ in 0..TRIES {
            match served.make_dir(OsStr::new(FOLDER)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let folder = match served.child_dir(OsStr::new(FOLDER)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let name = OsString::from(format!("{:016x}", u64::from_le_bytes(random)));
            match part::create_locked(&folder, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(None) => {}
                Ok(Some(file)) => return Ok(Note { root: root.clone(), served, folder, name, file }),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Notes that the copy writes to the folder `path` below the root from now on.
    ///
    /// # Errors
    ///
    /// If the note cannot be written to.
    pub fn set(&self, path: &Path) -> io::Result<()> {
        let below = names::bytes(self.root.below());
        self.file.write_all_at(&[below, b"\0", names::bytes(path), b"\0"].concat(), 0)
    }

    /// Ends the note of a copy to the folder `base` below the root that has completed. What killed servers
    /// left there is removed as [`clean`] does.
    pub fn finish(self, base: &Path) {
        let base = self.root.below().join(base);
        let cleaned = clean_folder(&self.folder, self.root.served(), |path| path.starts_with(&base));
        if let Err(error) = cleaned {
            tracing::warn!(%error, "cannot look for the unfinished files of a killed server");
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Err(error) = self.folder.remove_file(&self.name) {
            tracing::warn!(%error, "cannot remove the note of a copy");
        }
        // Only an empty folder is removed.
        let _ = self.served.remove_dir(OsStr::new(FOLDER));
    }
}

/// Removes what killed servers left below the `served` folder. It reads the folders of at most 1,024
/// notes, and no others. Parts and notes of living processes stay, and so do parts that a copy may
/// continue.
///
/// # Errors
///
/// If the folder of notes cannot be read.
pub fn clean(served: &Path) -> io::Result<()> {
    let dir = Dir::open(served)?;
    let folder = match dir.child_dir(OsStr::new(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    clean_folder(&folder, served, |_| true)?;
    let _ = dir.remove_dir(OsStr::new(FOLDER));
    Ok(())
}

/// Cleans the folders of those notes in `notes` whose paths below the `served` folder are `wanted`.
fn clean_folder(notes: &Dir, served: &Path, wanted: impl Fn(&Path) -> bool) -> io::Result<()> {
    for name in notes.entries()?.take(MAX_NOTES) {
        let name = name?;
        let Ok(note) = notes.child_file_writable(&name) else { continue };
        if note.try_lock().is_err() {
            continue;
        }
        if let Some((below, path)) = read(note) {
            if !wanted(&below.join(&path)) {
                continue;
            }
            let dir = Root::new(served, &below).open().and_then(|root| root.open_dir(&path));
            match dir.and_then(|dir| part::remove_abandoned(&dir, Duration::ZERO, usize::MAX)) {
                // A later copy or start removes what was not continued until then.
                Ok(true) => continue,
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, "cannot look for the unfinished files of a killed server");
                }
                _ => {}
            }
        }
        let _ = notes.remove_file(&name);
    }
    Ok(())
}

/// The folder of the client in a note, and the path below it; `None` if the copy had not begun to write.
fn read(note: File) -> Option<(PathBuf, PathBuf)> {
    let mut content = Vec::new();
    note.take(2 * (names::MAX_PATH_BYTES as u64 + 1)).read_to_end(&mut content).ok()?;
    let mut paths = content.split(|byte| *byte == 0);
    let (below, path, _) = (paths.next()?, paths.next()?, paths.next()?);
    Some((names::check_path(below).ok()?, names::check_path(path).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Identity;
    use crate::part::Part;
    use crate::testing::Temp;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    const ABANDONED: &str = ".x.0123456789abcdef.multirail-part";

    /// Writes the note of a copy that was killed while it wrote to `path`, and its part.
    fn abandon(temp: &Temp, name: &str, path: &str) {
        std::fs::create_dir_all(temp.path().join(path)).unwrap();
        std::fs::write(temp.path().join(path).join(ABANDONED), "half").unwrap();
        std::fs::create_dir_all(temp.path().join(FOLDER)).unwrap();
        std::fs::write(temp.path().join(FOLDER).join(name), format!("\0{path}\0left of a longer path")).unwrap();
    }

    #[test]
    fn what_killed_copies_left_is_removed() {
        let temp = Temp::new();
        abandon(&temp, "1", "a/b");
        abandon(&temp, "2", "");
        std::fs::write(temp.path().join(FOLDER).join("3"), "").unwrap();
        std::fs::write(temp.path().join(FOLDER).join("4"), "\0gone\0").unwrap();
        clean(temp.path()).unwrap();
        assert_eq!(temp.names(), ["a"]);
        assert_eq!(std::fs::read_dir(temp.path().join("a/b")).unwrap().count(), 0);
    }

    #[test]
    fn parts_and_notes_of_living_copies_stay() {
        let temp = Temp::new();
        abandon(&temp, "1", "a");
        let note = Note::begin(&temp.path().into()).unwrap();
        note.set(Path::new("a/and/a/longer/path")).unwrap();
        note.set(Path::new("a")).unwrap();
        let dir = Arc::new(temp.dir().open_dir(Path::new("a")).unwrap());
        let part = Part::create(dir, OsStr::new("file")).unwrap();
        clean(temp.path()).unwrap();
        assert_eq!(std::fs::read_dir(temp.path().join("a")).unwrap().count(), 1, "the living part");
        assert_eq!(std::fs::read_dir(temp.path().join(FOLDER)).unwrap().count(), 1, "the living note");
        drop((part, note));
        assert_eq!(temp.names(), ["a"]);
    }

    #[test]
    fn a_note_leads_nowhere_else() {
        let temp = Temp::new();
        abandon(&temp, "1", "outside");
        abandon(&temp, "2", "root");
        let notes = temp.path().join("root").join(FOLDER);
        std::fs::create_dir(&notes).unwrap();
        for (name, path) in [("1", "../outside"), ("2", "link")] {
            std::fs::write(notes.join(name), format!("\0{path}\0")).unwrap();
        }
        std::os::unix::fs::symlink("../outside", temp.path().join("root/link")).unwrap();
        clean(&temp.path().join("root")).unwrap();
        assert!(temp.path().join("outside").join(ABANDONED).exists());
        assert!(!notes.exists());
    }

    #[test]
    fn a_copy_that_completes_removes_what_was_left_of_its_destination() {
        let temp = Temp::new();
        let notes = temp.path().join(FOLDER);
        for (name, path) in [("1", "a/to"), ("2", "a/to/below"), ("3", "a/to-other"), ("4", "gone")] {
            abandon(&temp, name, path);
        }
        std::fs::write(notes.join("5"), "").unwrap();
        std::fs::write(notes.join("6"), "a\0to/below\0").unwrap();
        Note::begin(&Root::new(temp.path(), Path::new("a"))).unwrap().finish(Path::new("to"));
        let mut left: Vec<_> = std::fs::read_dir(&notes).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["3", "4"]);
        assert_eq!(std::fs::read_dir(temp.path().join("a/to")).unwrap().count(), 1, "the folder in it");
        assert_eq!(std::fs::read_dir(temp.path().join("a/to/below")).unwrap().count(), 0);
        assert!(temp.path().join("a/to-other").join(ABANDONED).exists());
        Note::begin(&temp.path().into()).unwrap().finish(Path::new(""));
        assert_eq!(temp.names(), ["a", "gone"]);
    }

    #[test]
    fn a_note_stays_while_its_folder_has_a_part_that_can_be_continued() {
        let temp = Temp::new();
        abandon(&temp, "1", "a");
        let (dir, name) = (temp.dir().open_dir(Path::new("a")).unwrap(), OsStr::new("file"));
        let identity = Identity { total_bytes: 3 << 20, blocks: 3, fingerprint: [1; 32] };
        let (part, _) = Part::resume(Arc::new(dir), name, &identity).unwrap();
        part.stays().store(true, Ordering::Relaxed);
        drop(part);
        Note::begin(&temp.path().into()).unwrap().finish(Path::new("a"));
        assert_eq!(std::fs::read_dir(temp.path().join(FOLDER)).unwrap().count(), 1, "the note");
        assert_eq!(std::fs::read_dir(temp.path().join("a")).unwrap().count(), 1, "the part");
        std::fs::remove_dir_all(temp.path().join("a")).unwrap();
        Note::begin(&temp.path().into()).unwrap().finish(Path::new("a"));
        assert!(temp.names().is_empty());
    }

    /// The folder of the client is no place for links, since other clients could make them.
    #[test]
    fn the_note_of_a_confined_client_leads_no_further_than_the_client() {
        let temp = Temp::new();
        abandon(&temp, "1", "outside");
        std::fs::create_dir(temp.path().join("root")).unwrap();
        std::os::unix::fs::symlink("../outside", temp.path().join("root/link")).unwrap();
        std::os::unix::fs::symlink("outside", temp.path().join("other")).unwrap();
        std::fs::write(temp.path().join(FOLDER).join("1"), "root\0link\0").unwrap();
        std::fs::write(temp.path().join(FOLDER).join("2"), "other\0\0").unwrap();
        clean(temp.path()).unwrap();
        assert!(temp.path().join("outside").join(ABANDONED).exists());
        assert_eq!(temp.names(), ["other", "outside", "root"]);
    }
}
