//! Removes what broadcasts left that are not continued.
//!
//! The hidden folder of an interrupted broadcast stays, since the same broadcast continues from it. If
//! that does not happen within [`KEPT_FOR`], a later broadcast to the same folder removes it, or a
//! server that starts and serves that folder.

use super::{MARK, part_name};
use multirail_tree::dir::Dir;
use multirail_tree::part::{PART_SUFFIX, ages};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// How long an interrupted broadcast can be continued. Every write to its files begins that time
/// anew.
pub(crate) const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// The most names that are read of a folder.
const MAX_NAMES: usize = 16_384;
/// The digits of the id in the name of a hidden folder: half of its hexadecimal digits.
pub(super) const ID_DIGITS: usize = 32;

/// Removes the hidden folders in `base` whose broadcast was interrupted, and not continued for `age`.
/// Folders that a process uses, or that hold anything else, stay.
pub(crate) fn remove_abandoned(base: &Dir, age: Duration) -> io::Result<()> {
    let mut ages = ages(base);
    for name in base.entries()?.take(MAX_NAMES) {
        let name = name?;
        if is_folder_name(&name) && remove(base, &name, |changed_s| ages.is_old(changed_s, age)).unwrap_or(false) {
            tracing::info!(folder = ?name, "removed the files of a broadcast that was not continued");
        }
    }
    Ok(())
}

/// Whether `name` has the form `.multirail-ID.multirail-part`.
fn is_folder_name(name: &OsStr) -> bool {
    let id = name.as_bytes().strip_prefix(b".multirail-").and_then(|rest| rest.strip_suffix(PART_SUFFIX.as_bytes()));
    id.is_some_and(|id| id.len() == ID_DIGITS && id.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// Removes a hidden folder if its latest change is old, and returns whether it did.
fn remove(base: &Dir, name: &OsStr, mut is_old: impl FnMut(i64) -> bool) -> io::Result<bool> {
    let folder = base.child_dir(name)?;
    // The lock is released when the folder is closed.
    if !folder.lock()? {
        return Ok(false);
    }
    let mut parts = Vec::new();
    let mut latest_s = folder.as_file()?.metadata()?.ctime();
    for part in folder.entries()? {
        let part = part?;
        let number = part.to_str().and_then(|text| text.parse().ok());
        if part != MARK && number.is_none_or(|number: u32| part_name(number) != part) {
            return Ok(false);
        }
        latest_s = latest_s.max(folder.child_file(&part)?.metadata()?.ctime());
        parts.push(part);
    }
    if !is_old(latest_s) {
        return Ok(false);
    }
    for part in parts {
        folder.remove_file(&part)?;
    }
    base.remove_dir(name)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complete, complete_but_one, file, finish, open};
    use super::*;
    use crate::store::testing::Temp;
    use std::fs;
    use std::path::Path;

    fn hidden(temp: &Temp) -> Vec<String> {
        let names =
            fs::read_dir(temp.join("to")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".multirail-")).collect()
    }

    fn base(temp: &Temp) -> Dir {
        Dir::open(&temp.join("to")).unwrap()
    }

    #[test]
    fn a_folder_goes_when_it_is_old_and_nobody_uses_it() {
        let temp = Temp::new();
        let source = file(&temp, "x", 100_000);
        let store = open(&source, &temp.join("to/x")).unwrap();
        complete_but_one(&source, &store);
        remove_abandoned(&base(&temp), Duration::ZERO).unwrap();
        assert_eq!(hidden(&temp).len(), 1, "a store has it");
        drop(store);
        remove_abandoned(&base(&temp), Duration::from_secs(3600)).unwrap();
        assert_eq!(hidden(&temp).len(), 1, "it is young");
        // The broadcast continues.
        let store = open(&source, &temp.join("to/x")).unwrap();
        assert_eq!(complete(&source, &store), 1);
        drop(store);
        remove_abandoned(&base(&temp), Duration::ZERO).unwrap();
        assert_eq!(hidden(&temp), [""; 0]);
        assert!(!temp.join("to/x").exists());
    }

    #[test]
    fn a_file_that_is_young_keeps_its_folder() {
        let temp = Temp::new();
        let name = format!(".multirail-{}{PART_SUFFIX}", "0".repeat(ID_DIGITS));
        let folder = temp.join("to").join(&name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(part_name(0)), "content").unwrap();
        let changed = |path: &Path| fs::metadata(path).unwrap().ctime();
        // Change times cannot be set. The file's is at least a second after the folder's.
        let part = folder.join(part_name(0));
        while changed(&part) <= changed(&folder) {
            std::thread::sleep(Duration::from_millis(50));
            fs::write(&part, "content").unwrap();
        }
        let until = |oldest_s: i64| move |changed_s: i64| changed_s <= oldest_s;
        assert!(!remove(&base(&temp), OsStr::new(&name), until(changed(&folder))).unwrap());
        assert!(remove(&base(&temp), OsStr::new(&name), until(changed(&part))).unwrap());
    }

    #[test]
    fn other_folders_stay() {
        let temp = Temp::new();
        let id = "0123456789abcdef".repeat(2);
        let with_more = format!(".multirail-{id}{PART_SUFFIX}");
        let names = [
            format!(".multirail-{}{PART_SUFFIX}", &id[1..]),
            format!(".multirail-{id}"),
            format!(".multirail-copies{PART_SUFFIX}"),
            format!(".multirail-{}{PART_SUFFIX}", id.to_uppercase()),
            with_more.clone(),
        ];
        for name in &names {
            fs::create_dir(temp.join("to").join(name)).unwrap();
        }
        fs::write(temp.join("to").join(&with_more).join("of a user"), "").unwrap();
        remove_abandoned(&base(&temp), Duration::ZERO).unwrap();
        assert_eq!(hidden(&temp).len(), names.len());
    }

    /// The next broadcast to the folder does it by itself, though not for young folders.
    #[test]
    fn the_next_broadcast_leaves_young_folders_alone() {
        let temp = Temp::new();
        let (one, other) = (file(&temp, "x", 50_000), file(&temp, "y", 60_000));
        complete_but_one(&one, &open(&one, &temp.join("to/x")).unwrap());
        let store = open(&other, &temp.join("to/y")).unwrap();
        complete(&other, &store);
        finish(&store);
        assert_eq!(hidden(&temp).len(), 1);
    }
}
