//! The received tree equals the sent one, and nothing else is written.

use super::testing::{complete, file, finish, open, piece, source, without_root_times};
use super::*;
use crate::store::manifest::EntryKind;
use crate::store::testing::{Temp, content, make_tree, names, snapshot};
use multirail_proto::rng::Rng;
use proptest::prelude::*;
use std::fs;

#[derive(Debug, Clone)]
enum Step {
    /// Writes a piece, once or twice.
    Write(prop::sample::Index, bool),
    Wrong(prop::sample::Index, prop::sample::Index),
    /// The process ends and starts again.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(piece, again)| Step::Write(piece, again)),
        2 => (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(piece, at)| Step::Wrong(piece, at)),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Any tree; pieces in any order, some twice, some wrong; a process that ends and starts again.
    #[test]
    fn the_received_tree_is_the_sent_one(seed: u64, steps in steps(), shape in 0u8..4, lost: u64) {
        let temp = Temp::new();
        make_tree(seed, &temp.join("from/tree"));
        // The tree goes into a folder, into a new one, without its own name, or beside another source.
        let (sources, to, arrived) = match shape {
            0 => (vec![temp.join("from/tree")], "to", "to/tree"),
            1 => (vec![temp.join("from/tree")], "to/new", "to/new/tree"),
            2 => (vec![temp.join("from/tree/.")], "to", "to"),
            _ => {
                fs::write(temp.join("from/other"), content(seed, 40_000)).unwrap();
                (vec![temp.join("from/other"), temp.join("from/tree")], "to", "to/tree")
            }
        };
        let to = temp.join(to);
        let source = source(&sources);
        let count = source.manifest().pieces().count();
        let mut store = open(&source, &to).unwrap();
        for step in steps {
            prop_assert!(names(&temp.join("to")).iter().all(|n| n.starts_with(".multirail-")), "no file has its name yet");
            match step {
                Step::Write(number, again) if count > 0 => {
                    let number = number.index(count as usize) as u32;
                    let is_new = !store.held().contains(number);
                    let bytes = piece(&source, number);
                    let expected = if is_new { Written::New } else { Written::Already };
                    prop_assert_eq!(store.write(number, &bytes), Ok(expected));
                    if again {
                        prop_assert_eq!(store.write(number, &bytes), Ok(Written::Already));
                    }
                }
                Step::Wrong(number, at) if count > 0 => {
                    let number = number.index(count as usize) as u32;
                    let (held, mut bytes) = (store.held(), piece(&source, number));
                    let at = at.index(bytes.len());
                    bytes[at] ^= 4;
                    prop_assert_eq!(store.write(number, &bytes), Err(StoreError::Mismatch { piece: number }));
                    prop_assert_eq!(store.held(), held);
                }
                Step::Crash => {
                    let held = store.held();
                    drop(store);
                    store = open(&source, &to).unwrap();
                    // Zeros are stored without being sent.
                    prop_assert_eq!(held.without(&store.held()).count(), 0);
                }
                _ => {}
            }
            for number in store.held().iter() {
                let mut bytes = vec![0; source.manifest().piece_len(number)];
                store.read(number, 0, &mut bytes).unwrap();
                prop_assert!(bytes == piece(&source, number));
            }
        }
        if !store.held().is_full() {
            let too_early = store.finish().unwrap_err();
            prop_assert!(matches!(too_early, StoreError::Incomplete { .. }), "{}", too_early);
        }
        complete(&source, &store);
        finish(&store);
        finish(&store);
        let expected = without_root_times(snapshot(&temp.join("from/tree")));
        prop_assert_eq!(&without_root_times(snapshot(&temp.join(arrived))), &expected);
        if shape < 2 {
            prop_assert_eq!(snapshot(&temp.join(arrived)), snapshot(&temp.join("from/tree")));
        }
        if shape == 3 {
            prop_assert!(fs::read(temp.join("to/other")).unwrap() == content(seed, 40_000));
        }
        // Peers still request pieces.
        for number in 0..count {
            let mut bytes = vec![0; source.manifest().piece_len(number)];
            store.read(number, 0, &mut bytes).unwrap();
            prop_assert!(bytes == piece(&source, number));
        }
        drop(store);

        // The store opens again without some of its files: only their pieces are missing.
        let mut rng = Rng::new(lost);
        let mut missing = PieceSet::none(count);
        for (index, entry) in source.manifest().entries().iter().enumerate() {
            let path = source.manifest().path(index as u32);
            if matches!(entry.kind(), EntryKind::Directory) || rng.below(4) > 0 {
                continue;
            }
            fs::remove_file(to.join(path)).unwrap();
            for number in 0..count {
                if source.manifest().spans(source.manifest().pieces().range(number)).any(|s| s.entry == index as u32) {
                    missing.insert(number);
                }
            }
        }
        let store = open(&source, &to).unwrap();
        prop_assert_eq!(complete(&source, &store), missing.len());
        finish(&store);
        prop_assert_eq!(&without_root_times(snapshot(&temp.join(arrived))), &expected);
    }
}

/// The number of files below `temp` that this process has open for writing.
fn open_for_writing(temp: &Temp) -> usize {
    let is_open = |fd: &fs::DirEntry| {
        let name = fd.file_name();
        let flags = fs::read_to_string(Path::new("/proc/self/fdinfo").join(name)).unwrap_or_default();
        let flags = flags.lines().find_map(|l| l.strip_prefix("flags:")).unwrap_or("0").trim();
        fs::read_link(fd.path()).is_ok_and(|path| path.starts_with(&temp.0))
            && i32::from_str_radix(flags, 8).unwrap() & libc::O_ACCMODE != libc::O_RDONLY
    };
    fs::read_dir("/proc/self/fd").unwrap().filter(|fd| is_open(fd.as_ref().unwrap())).count()
}

#[test]
fn one_file_gets_its_name_at_the_end() {
    let temp = Temp::new();
    let source = file(&temp, "file", 100_000);
    for (to, arrived) in [("to", "to/file"), ("to/other", "to/other")] {
        fs::write(temp.join(arrived), "old").unwrap();
        let store = open(&source, &temp.join(to)).unwrap();
        complete(&source, &store);
        assert_eq!(fs::read(temp.join(arrived)).unwrap(), b"old");
        assert_eq!(open_for_writing(&temp), 1);
        finish(&store);
        // Otherwise a received program could not be executed.
        assert_eq!(open_for_writing(&temp), 0);
        assert_eq!(snapshot(&temp.join(arrived)), snapshot(&temp.join("from/file")));
    }
    // The same below a served folder.
    fs::create_dir(temp.join("to/sub")).unwrap();
    for (path, arrived) in [("sub", "to/sub/file"), ("sub/name", "to/sub/name")] {
        let (root, path) = (temp.join("to"), Path::new(path));
        let manifest = source.manifest().clone();
        let destination = Destination { root: &root.as_path().into(), path };
        let store = TreeStore::open(manifest, destination, TreeOptions { sync: true }).unwrap();
        complete(&source, &store);
        finish(&store);
        assert_eq!(snapshot(&temp.join(arrived)), snapshot(&temp.join("from/file")));
    }
    assert_eq!(names(&temp.join("to")), ["file", "other", "sub"]);
}

#[test]
fn an_unused_store_leaves_nothing_behind() {
    let temp = Temp::new();
    let source = file(&temp, "file", 100_000);
    drop(open(&source, &temp.join("to")).unwrap());
    assert_eq!(names(&temp.join("to")), [""; 0]);
    let store = open(&source, &temp.join("to")).unwrap();
    store.write(1, &piece(&source, 1)).unwrap();
    assert!(names(&temp.join("to")).iter().all(|name| name.starts_with(".multirail-")));
    assert!(matches!(store.finish(), Err(StoreError::Incomplete { missing: 6 })));
}

#[test]
fn nothing_is_written_outside_the_destination() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    fs::write(temp.join("from/tree/file"), content(1, 20_000)).unwrap();
    let source = source(&[temp.join("from/tree")]);
    let root = temp.join("to");
    let below = |path: &str| {
        let destination = Destination { root: &root.as_path().into(), path: Path::new(path) };
        TreeStore::open(source.manifest().clone(), destination, TreeOptions::default())
    };
    for path in ["..", "/tmp", "../from", "a/../..", "missing/name", "x.multirail-part"] {
        let error = below(path).unwrap_err();
        assert!(matches!(error, StoreError::Destination(_)), "{path}: {error}");
    }
    // Symlinks that lead out: the destination itself, and a directory on the path.
    std::os::unix::fs::symlink(temp.join("from"), temp.join("to/out")).unwrap();
    assert!(below("out").is_err() && below("out/name").is_err());
    fs::create_dir(temp.join("outside")).unwrap();
    std::os::unix::fs::symlink(temp.join("outside"), temp.join("to/tree")).unwrap();
    let error = below("").unwrap_err();
    assert!(error.to_string().contains("leads out"), "{error}");
    fs::remove_file(temp.join("to/tree")).unwrap();
    // The same after the store was opened.
    let store = below("").unwrap();
    complete(&source, &store);
    std::os::unix::fs::symlink(temp.join("outside"), temp.join("to/tree")).unwrap();
    let report = store.finish().unwrap();
    assert_eq!((report.files, report.directories), (0, 0), "{report:?}");
    assert_eq!(names(&temp.join("outside")), [""; 0]);
    fs::remove_file(temp.join("to/tree")).unwrap();
    // A symlink with the file's name is replaced, not followed.
    fs::write(temp.join("outside/victim"), "untouched").unwrap();
    fs::create_dir(temp.join("to/tree")).unwrap();
    std::os::unix::fs::symlink(temp.join("outside/victim"), temp.join("to/tree/file")).unwrap();
    finish(&store);
    assert_eq!(fs::read(temp.join("outside/victim")).unwrap(), b"untouched");
    assert_eq!(snapshot(&temp.join("to/tree")), snapshot(&temp.join("from/tree")));
}

#[test]
fn a_file_with_the_name_of_a_directory_is_reported_at_once() {
    let temp = Temp::new();
    fs::create_dir_all(temp.join("from/tree/dir")).unwrap();
    let source = source(&[temp.join("from/tree")]);
    fs::create_dir(temp.join("to/tree")).unwrap();
    fs::write(temp.join("to/tree/dir"), "x").unwrap();
    let error = open(&source, &temp.join("to")).unwrap_err();
    assert!(error.to_string().contains("tree/dir: there is a file of that name"), "{error}");
    assert_eq!(names(&temp.join("to")), ["tree"]);
}

#[test]
fn several_threads_write_the_same_pieces() {
    let temp = Temp::new();
    for seed in 0..4 {
        make_tree(seed, &temp.join(&format!("from/{seed}")));
    }
    let source = source(&[temp.join("from/.")]);
    let count = source.manifest().pieces().count();
    assert!(count > 10);
    let store = open(&source, &temp.join("to")).unwrap();
    let zeros = store.held().len();
    let barrier = std::sync::Barrier::new(4);
    let new: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|seed| {
                let (source, store, barrier) = (&source, &store, &barrier);
                scope.spawn(move || {
                    let mut order: Vec<u32> = (0..count).collect();
                    let mut rng = Rng::new(seed);
                    order.sort_by_cached_key(|_| rng.next_u64());
                    barrier.wait();
                    let mut new = 0;
                    for number in order {
                        let bytes = piece(source, number);
                        new += u32::from(store.write(number, &bytes).unwrap() == Written::New);
                        let mut again = vec![0; bytes.len()];
                        store.read(number, 0, &mut again).unwrap();
                        assert!(bytes == again);
                        // One thread completes the store while the others still write.
                        if store.held().is_full() {
                            assert!(store.finish().unwrap().is_success());
                        }
                    }
                    new
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(new + zeros, count, "each piece is new to one of them");
    let without_top = |at| without_root_times(snapshot(&temp.join(at)));
    assert_eq!(without_top("to"), without_top("from"));
}
