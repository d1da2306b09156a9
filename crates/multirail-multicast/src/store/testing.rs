//! Trees for tests of stores.

use multirail_proto::rng::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// A temporary directory with `from` and `to` in it, which is removed when this is dropped.
pub(crate) struct Temp(pub(crate) PathBuf);

impl Temp {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("multirail-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("from")).unwrap();
        fs::create_dir_all(path.join("to")).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Pseudo-random bytes.
pub(super) fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut content: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    content.truncate(bytes);
    content
}

/// Makes a directory with directories and files in it: empty, small, zero-filled, and of several 16
/// KiB pieces.
pub(super) fn make_tree(seed: u64, at: &Path) {
    fn fill(rng: &mut Rng, at: &Path, depth: u64) {
        fs::create_dir(at).unwrap();
        for number in 0..rng.below(5) {
            let name = ["a", "a.b", "ä ö", "-x", ".hidden", "Z"][rng.below(6) as usize];
            let path = at.join(format!("{name}{number}"));
            if depth < 3 && rng.below(3) == 0 {
                fill(rng, &path, depth + 1);
                continue;
            }
            let bytes = match rng.below(4) {
                0 => 0,
                1 => rng.below(3000),
                2 => rng.below(70_000),
                // Zero whole pieces, so that they can be holes.
                _ => rng.below(4) << 14,
            };
            let mut content = content(rng.next_u64(), bytes as usize);
            if rng.below(4) == 0 {
                content.fill(0);
            }
            fs::write(&path, content).unwrap();
            dress(rng, &path, &[0o600, 0o644, 0o755, 0o444, 0o666]);
        }
        dress(rng, at, &[0o700, 0o755, 0o711]);
    }
    fill(&mut Rng::new(seed), at, 0);
}

fn dress(rng: &mut Rng, path: &Path, modes: &[u32]) {
    let file = File::open(path).unwrap();
    let since = Duration::new(rng.below(2_000_000_000), rng.below(1_000_000_000) as u32);
    let at = if rng.below(8) == 0 { UNIX_EPOCH - since / 4 } else { UNIX_EPOCH + since };
    file.set_modified(at).unwrap();
    fs::set_permissions(path, Permissions::from_mode(modes[rng.below(modes.len() as u64) as usize])).unwrap();
}

/// The state of a tree: path, mode, modification time and content of every entry.
pub(super) type Snapshot = BTreeMap<PathBuf, (u32, i64, i64, Option<Vec<u8>>)>;

/// The entries of `at` and below; the path of `at` is empty.
pub(super) fn snapshot(at: &Path) -> Snapshot {
    fn add(found: &mut Snapshot, at: &Path, path: &Path) {
        let stat = fs::symlink_metadata(at).unwrap();
        assert!(stat.is_dir() || stat.is_file(), "{at:?}");
        let content = stat.is_file().then(|| fs::read(at).unwrap());
        found.insert(path.to_owned(), (stat.mode(), stat.mtime(), stat.mtime_nsec(), content));
        if stat.is_dir() {
            for name in names(at) {
                add(found, &at.join(&name), &path.join(&name));
            }
        }
    }
    let mut found = Snapshot::new();
    add(&mut found, at, Path::new(""));
    found
}

/// The names in a directory, sorted.
pub(super) fn names(at: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
