//! Random trees of files, and what a disk may have of one.

use multirail::files::PART_SUFFIX;
use multirail_proto::rng::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const FILES: u64 = 9;
const DIRECTORIES: [&str; 4] = ["", "a", "a/b", "c"];
const MODES: [u32; 4] = [0o644, 0o600, 0o755, 0o400];
/// Lengths that travel in different ways: in one item, in pieces, and by blocks with a journal.
const LENGTHS: [u64; 7] = [0, 1, 700, 5_000, 100_000, 700_000, 2_500_000];
/// Such a file continues where it was stopped. One tree in three has one.
const LARGE: u64 = (8 << 20) + 12_345;

#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    File { content: Vec<u8>, mode: u32, modified: SystemTime },
    Directory { mode: u32 },
    Symlink { target: PathBuf },
}

/// Entries by path.
pub type Tree = BTreeMap<PathBuf, Entry>;

/// What a tree is compared with a disk for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The whole tree and nothing else.
    Whole,
    /// Each file is the old or the new one. Entries may be missing, and parts may be there.
    OldOrNew,
}

fn time(rng: &mut Rng) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000 + rng.below(500_000_000), rng.below(1_000_000_000) as u32)
}

fn content(rng: &mut Rng, bytes: u64) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    for chunk in content.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    }
    content
}

fn file(rng: &mut Rng, bytes: u64) -> Entry {
    let mode = MODES[rng.below(MODES.len() as u64) as usize];
    Entry::File { content: content(rng, bytes), mode, modified: time(rng) }
}

/// A random tree.
pub fn random(rng: &mut Rng) -> Tree {
    let directory = |path: &&str| (PathBuf::from(path), Entry::Directory { mode: 0o755 });
    let mut tree: Tree = DIRECTORIES.iter().filter(|path| !path.is_empty()).map(directory).collect();
    tree.insert("c".into(), Entry::Directory { mode: 0o700 });
    let mut lengths: Vec<u64> = (0..FILES).map(|_| LENGTHS[rng.below(LENGTHS.len() as u64) as usize]).collect();
    if rng.below(3) == 0 {
        lengths.push(LARGE);
    }
    for (number, bytes) in lengths.into_iter().enumerate() {
        let dir = DIRECTORIES[rng.below(DIRECTORIES.len() as u64) as usize];
        tree.insert(Path::new(dir).join(format!("file{number}")), file(rng, bytes));
    }
    tree.insert("a/link".into(), Entry::Symlink { target: "b".into() });
    tree
}

/// Other files of some of the names of `tree`.
pub fn older(tree: &Tree, rng: &mut Rng) -> Tree {
    let mut old = Tree::new();
    for (path, entry) in tree {
        if matches!(entry, Entry::File { .. }) && rng.below(3) == 0 {
            let bytes = LENGTHS[rng.below(LENGTHS.len() as u64) as usize] + 3;
            old.insert(path.clone(), file(rng, bytes));
        }
    }
    old
}

/// Writes `tree` below `root`, which is made.
pub fn write(tree: &Tree, root: &Path) {
    fs::create_dir_all(root).unwrap();
    for (path, entry) in tree {
        let path = root.join(path);
        match entry {
            Entry::Directory { mode } => {
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(*mode)).unwrap();
            }
            Entry::File { content, mode, modified } => {
                fs::write(&path, content).unwrap();
                let file = File::options().append(true).open(&path).unwrap();
                file.set_times(FileTimes::new().set_modified(*modified)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(*mode)).unwrap();
            }
            Entry::Symlink { target } => symlink(target, &path).unwrap(),
        }
    }
}

/// Reads what is below `root`.
fn read(root: &Path) -> Tree {
    let (mut tree, mut rest) = (Tree::new(), vec![root.to_owned()]);
    while let Some(dir) = rest.pop() {
        for found in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = found.unwrap().path();
            let stat = match fs::symlink_metadata(&path) {
                // The session of a copy that has failed removes it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_part(&path) => continue,
                stat => stat.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            };
            let mode = stat.permissions().mode() & 0o777;
            let entry = if stat.is_dir() {
                rest.push(path.clone());
                Entry::Directory { mode }
            } else if stat.is_symlink() {
                Entry::Symlink { target: fs::read_link(&path).unwrap() }
            } else {
                let content = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                Entry::File { content, mode, modified: stat.modified().unwrap() }
            };
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), entry);
        }
    }
    tree
}

fn is_part(path: &Path) -> bool {
    path.iter().any(|name| name.to_string_lossy().ends_with(PART_SUFFIX))
}

/// Compares what is below `root` with the `new` tree. `old` is what was there before.
pub fn check(root: &Path, new: &Tree, old: &Tree, wanted: Wanted) -> Result<(), String> {
    let found = if root.exists() { read(root) } else { Tree::new() };
    for (path, entry) in found.iter().filter(|(path, _)| wanted == Wanted::Whole || !is_part(path)) {
        let is_new = new.get(path).is_some_and(|new| match (new, entry, wanted) {
            // Its mode is set when its content is there.
            (Entry::Directory { .. }, Entry::Directory { .. }, Wanted::OldOrNew) => true,
            _ => new == entry,
        });
        let is_old = wanted == Wanted::OldOrNew && old.get(path) == Some(entry);
        let is_dir = wanted == Wanted::OldOrNew && matches!(entry, Entry::Directory { .. });
        if !(is_new || is_old || is_dir) {
            return Err(format!("{}: {}", path.display(), shown(entry, new.get(path), old.get(path))));
        }
    }
    let expected = if wanted == Wanted::Whole { new } else { old };
    match expected.keys().find(|path| !found.contains_key(*path)) {
        Some(path) => Err(format!("{} is missing", path.display())),
        None => Ok(()),
    }
}

fn shown(entry: &Entry, new: Option<&Entry>, old: Option<&Entry>) -> String {
    let one = |entry: &Entry| match entry {
        Entry::File { content, mode, modified } => {
            let hash = blake3::hash(content).to_hex();
            format!("{} bytes, {}, mode {mode:o}, {modified:?}", content.len(), &hash[..8])
        }
        other => format!("{other:?}"),
    };
    format!("{}; new: {:?}; old: {:?}", one(entry), new.map(one), old.map(one))
}
