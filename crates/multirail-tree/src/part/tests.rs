//! What becomes of the parts of killed and of living processes.

use super::*;
use crate::testing::Temp;

const META: Meta = Meta { mode: 0o644, mtime_s: 0, mtime_ns: 0 };

/// What a killed process leaves of the file `a`. A file that was not made by [`Part::create`] has no
/// lock.
fn abandon(temp: &Temp, number: u64) -> OsString {
    let name = part_name(OsStr::new("a"), number);
    std::fs::write(temp.join(&name), "half").unwrap();
    name
}

#[test]
fn a_new_part_replaces_an_abandoned_one_of_the_same_file() {
    let temp = Temp::new();
    abandon(&temp, 0);
    let part = Part::create(Arc::new(temp.dir()), OsStr::new("a")).unwrap();
    assert_eq!(temp.names().len(), 1);
    assert_eq!(part.file().metadata().unwrap().len(), 0);
    part.commit(&META, false).unwrap();
    assert_eq!(temp.names(), ["a"]);
}

#[test]
fn parts_that_are_being_written_stay() {
    let temp = Temp::new();
    let dir = Arc::new(temp.dir());
    let first = Part::create(dir.clone(), OsStr::new("a")).unwrap();
    let second = Part::create(dir.clone(), OsStr::new("a")).unwrap();
    remove_abandoned(&dir, Duration::ZERO, usize::MAX).unwrap();
    assert_eq!(temp.names().len(), 2);
    first.commit(&META, false).unwrap();
    drop(second);
    assert_eq!(temp.names(), ["a"]);
}

#[test]
fn old_abandoned_parts_are_removed_and_nothing_else() {
    let temp = Temp::new();
    let part = abandon(&temp, 3);
    let others = ["a.multirail-part", ".a.multirail-part", ".a.0123456789abcdeg.multirail-part", ".b.0123456789abcdef"];
    for name in others {
        std::fs::write(temp.join(OsStr::new(name)), "x").unwrap();
    }
    std::fs::create_dir(temp.join(OsStr::new(".d.0123456789abcdef.multirail-part"))).unwrap();
    remove_abandoned(&temp.dir(), ABANDONED_AFTER, usize::MAX).unwrap();
    assert!(temp.join(&part).exists(), "it is too young");
    remove_abandoned(&temp.dir(), Duration::ZERO, 0).unwrap();
    assert!(temp.join(&part).exists(), "the limit of names");
    remove_abandoned(&temp.dir(), Duration::ZERO, usize::MAX).unwrap();
    assert!(!temp.join(&part).exists());
    assert_eq!(temp.names().len(), others.len() + 1);
}

/// The file system's time is that of a file with a name of its own.
#[test]
fn ages_leave_nothing_and_take_no_part() {
    let temp = Temp::new();
    let part = part_name(OsStr::new("clock"), 0);
    std::fs::write(temp.join(&part), "half").unwrap();
    assert!(ages(&temp.dir()).is_old(0, ABANDONED_AFTER));
    assert_eq!(temp.names(), [part.to_str().unwrap()]);
}

#[test]
fn names_of_parts_fit_and_differ() {
    let long = OsString::from("x".repeat(255));
    let names: Vec<OsString> = (0..3).map(|number| part_name(&long, number)).collect();
    assert!(names.iter().all(|name| name.len() <= 255 && has_form_of_part(name)));
    assert!(names[0] != names[1] && names[0] != part_name(OsStr::new(&"x".repeat(254)), 0));
}

fn identity(fingerprint: u8) -> Identity {
    Identity { total_bytes: 1 << 20, blocks: 4, fingerprint: [fingerprint; 32] }
}

/// A part that a killed copy left, with one block confirmed.
fn abandon_resumable(temp: &Temp) {
    let (part, journal) = Part::resume(Arc::new(temp.dir()), OsStr::new("a"), &identity(1)).unwrap();
    journal.confirm(2, &[2; 32]).unwrap();
    part.stays().store(true, Ordering::Relaxed);
}

#[test]
fn a_part_with_the_same_journal_is_continued() {
    let temp = Temp::new();
    abandon_resumable(&temp);
    let (part, journal) = Part::resume(Arc::new(temp.dir()), OsStr::new("a"), &identity(1)).unwrap();
    assert_eq!(journal.read(2, 1).unwrap(), [[2; 32]]);
    part.commit(&META, false).unwrap();
    assert_eq!(temp.names(), ["a"]);
    assert_eq!(std::fs::metadata(temp.join(OsStr::new("a"))).unwrap().len(), 1 << 20, "without the journal");
}

#[test]
fn the_part_of_a_changed_source_starts_over() {
    let temp = Temp::new();
    abandon_resumable(&temp);
    let (part, journal) = Part::resume(Arc::new(temp.dir()), OsStr::new("a"), &identity(2)).unwrap();
    assert_eq!(journal.read(2, 1).unwrap(), [[0; 32]]);
    drop(part);
    assert_eq!(temp.names(), [""; 0]);
}

#[test]
fn a_part_that_is_being_written_is_not_continued() {
    let temp = Temp::new();
    let dir = Arc::new(temp.dir());
    let (first, _) = Part::resume(dir.clone(), OsStr::new("a"), &identity(1)).unwrap();
    assert!(Part::held(&dir, OsStr::new("a"), &identity(1)).is_some());
    assert!(Part::held(&dir, OsStr::new("a"), &identity(2)).is_none());
    let (second, _) = Part::resume(dir.clone(), OsStr::new("a"), &identity(1)).unwrap();
    assert_eq!(temp.names().len(), 2);
    second.stays().store(true, Ordering::Relaxed);
    drop(second);
    first.commit(&META, false).unwrap();
    assert_eq!(temp.names(), ["a"], "the other part is removed with the first's end");
}

#[test]
fn a_part_that_can_be_continued_stays_for_a_day() {
    let temp = Temp::new();
    abandon_resumable(&temp);
    assert!(remove_abandoned(&temp.dir(), Duration::ZERO, usize::MAX).unwrap());
    assert_eq!(temp.names().len(), 1);
}
