//! Notes of the folders that copies write to, for the case that their server is killed.
//!
//! A killed server leaves unfinished files behind. A walk through the served tree would find them,
//! but takes as long as the tree is large. So each copy has a note: a file in the hidden folder
//! `.multirail-copies.multirail-part` of the served folder, with the path of the folder that the
//! copy writes to at the moment. The copy locks its note, and removes it at its end. A server that
//! starts removes the abandoned parts in the folders of the notes without a lock, and these notes
//! ([`clean`]).
//!
//! Notes are not synced to disk. After a crash of the host, parts are removed as [`crate::part`]
//! says.

use crate::dir::Dir;
use crate::names;
use crate::part;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
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
    root: Dir,
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
    pub fn begin(root: &Dir) -> io::Result<Note> {
        for _ in 0..TRIES {
            match root.make_dir(OsStr::new(FOLDER)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let folder = match root.child_dir(OsStr::new(FOLDER)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let name = OsString::from(format!("{:016x}", u64::from_le_bytes(random)));
            match part::create_locked(&folder, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(None) => {}
                Ok(Some(file)) => return Ok(Note { root: root.open_dir(Path::new(""))?, folder, name, file }),
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
        self.file.write_all_at(&[names::bytes(path), b"\0"].concat(), 0)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Err(error) = self.folder.remove_file(&self.name) {
            tracing::warn!(%error, "cannot remove the note of a copy");
        }
        // Only an empty folder is removed.
        let _ = self.root.remove_dir(OsStr::new(FOLDER));
    }
}

/// Removes what killed servers left below `root`. It reads the folders of at most 1,024 notes, and
/// no others. Parts and notes of living processes stay, and so do parts that a copy may continue.
///
/// # Errors
///
/// If the folder of notes cannot be read.
pub fn clean(root: &Dir) -> io::Result<()> {
    let folder = match root.child_dir(OsStr::new(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    for name in folder.entries()?.take(MAX_NOTES) {
        let name = name?;
        let Ok(note) = folder.child_file_writable(&name) else { continue };
        if note.try_lock().is_err() {
            continue;
        }
        let dir = read(note).and_then(|path| names::check_path(&path).ok()).map(|path| root.open_dir(&path));
        match dir.map(|dir| part::remove_abandoned(&dir?, Duration::ZERO, usize::MAX)) {
            // A later start removes what was not continued until then.
            Some(Ok(true)) => continue,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot look for the unfinished files of a killed server");
            }
            _ => {}
        }
        let _ = folder.remove_file(&name);
    }
    let _ = root.remove_dir(OsStr::new(FOLDER));
    Ok(())
}

/// The path in a note; `None` if the copy had not begun to write.
fn read(note: File) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    note.take(names::MAX_PATH_BYTES as u64 + 1).read_to_end(&mut content).ok()?;
    content.truncate(content.iter().position(|byte| *byte == 0)?);
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Part;
    use crate::testing::Temp;
    use std::sync::Arc;

    const ABANDONED: &str = ".x.0123456789abcdef.multirail-part";

    /// Writes the note of a copy that was killed while it wrote to `path`, and its part.
    fn abandon(temp: &Temp, name: &str, path: &str) {
        std::fs::create_dir_all(temp.path().join(path)).unwrap();
        std::fs::write(temp.path().join(path).join(ABANDONED), "half").unwrap();
        std::fs::create_dir_all(temp.path().join(FOLDER)).unwrap();
        std::fs::write(temp.path().join(FOLDER).join(name), format!("{path}\0left of a longer path")).unwrap();
    }

    #[test]
    fn what_killed_copies_left_is_removed() {
        let temp = Temp::new();
        abandon(&temp, "1", "a/b");
        abandon(&temp, "2", "");
        std::fs::write(temp.path().join(FOLDER).join("3"), "").unwrap();
        std::fs::write(temp.path().join(FOLDER).join("4"), "gone\0").unwrap();
        clean(&temp.dir()).unwrap();
        assert_eq!(temp.names(), ["a"]);
        assert_eq!(std::fs::read_dir(temp.path().join("a/b")).unwrap().count(), 0);
    }

    #[test]
    fn parts_and_notes_of_living_copies_stay() {
        let temp = Temp::new();
        abandon(&temp, "1", "a");
        let note = Note::begin(&temp.dir()).unwrap();
        note.set(Path::new("a/and/a/longer/path")).unwrap();
        note.set(Path::new("a")).unwrap();
        let dir = Arc::new(temp.dir().open_dir(Path::new("a")).unwrap());
        let part = Part::create(dir, OsStr::new("file")).unwrap();
        clean(&temp.dir()).unwrap();
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
            std::fs::write(notes.join(name), format!("{path}\0")).unwrap();
        }
        std::os::unix::fs::symlink("../outside", temp.path().join("root/link")).unwrap();
        clean(&temp.dir().open_dir(Path::new("root")).unwrap()).unwrap();
        assert!(temp.path().join("outside").join(ABANDONED).exists());
        assert!(!notes.exists());
    }
}
