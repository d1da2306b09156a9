use super::*;
use crate::multicast::manifest::EntryKind;
use crate::multicast::source_store::{SourceOptions, SourceStore};
use crate::multicast::store_testing::{Snapshot, Temp, content, make_tree, names, snapshot};
use multirail_proto::rng::Rng;
use proptest::prelude::*;
use std::fs;
use std::io::{Read, Write};

const PIECE_BYTES: u32 = 1 << 14;

fn source(paths: &[PathBuf]) -> SourceStore {
    let options = SourceOptions { recursive: true, piece_bytes: Some(PIECE_BYTES), ..SourceOptions::default() };
    SourceStore::open(paths, &options).unwrap()
}

fn open(source: &SourceStore, to: &Path) -> Result<TreeStore, StoreError> {
    // As it comes to another host.
    let manifest = Arc::new(Manifest::decode(&source.manifest().encode()).unwrap());
    TreeStore::open(manifest, Destination::Local(to), TreeOptions::default())
}

fn piece(source: &SourceStore, piece: u32) -> Vec<u8> {
    let mut bytes = vec![0; source.manifest().piece_len(piece)];
    source.read(piece, 0, &mut bytes).unwrap();
    bytes
}

/// Gets what is missing; how many pieces that was.
fn complete(source: &SourceStore, store: &TreeStore) -> u32 {
    let missing: Vec<u32> = PieceSet::all(store.held().pieces()).without(&store.held()).collect();
    for number in &missing {
        assert_eq!(store.write(*number, &piece(source, *number)), Ok(Written::New));
    }
    missing.len() as u32
}

fn complete_but_one(source: &SourceStore, store: &TreeStore) {
    for number in 1..source.manifest().pieces().count() {
        assert_eq!(store.write(number, &piece(source, number)), Ok(Written::New));
    }
}

fn finish(store: &TreeStore) {
    let report = store.finish().unwrap();
    assert!(report.is_success(), "{report:?}");
    assert_eq!(report.bytes, store.manifest().pieces().total_bytes);
    assert_eq!((report.files + report.directories) as usize, store.manifest().entries().len());
}

/// A file of `bytes` as a source.
fn file(temp: &Temp, name: &str, bytes: usize) -> SourceStore {
    let path = temp.join("from").join(name);
    fs::write(&path, content(7, bytes)).unwrap();
    source(&[path])
}

fn without_root_times(mut snapshot: Snapshot) -> Snapshot {
    snapshot.remove(Path::new(""));
    snapshot
}

#[derive(Debug, Clone)]
enum Step {
    /// The piece, and whether it is written a second time.
    Write(prop::sample::Index, bool),
    Wrong(prop::sample::Index, prop::sample::Index),
    /// The process dies and starts again.
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
    /// Any tree, pieces in any order, some twice, some wrong, from a process that dies and starts again.
    #[test]
    fn what_arrives_is_what_was_sent(seed: u64, steps in steps(), shape in 0u8..4, lost: u64) {
        let temp = Temp::new();
        make_tree(seed, &temp.join("from/tree"));
        // The tree into a folder, under another name, without its own name, and beside another source.
        let (sources, to, arrived) = match shape {
            0 => (vec![temp.join("from/tree")], "to", "to/tree"),
            1 => (vec![temp.join("from/tree")], "to/new", "to/new"),
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
            prop_assert!(names(&temp.join("to")).iter().all(|n| n.starts_with(".multirail-")), "nothing has its name");
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
                    // Zeros are there without being sent.
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
        // Peers still ask for pieces.
        for number in 0..count {
            let mut bytes = vec![0; source.manifest().piece_len(number)];
            store.read(number, 0, &mut bytes).unwrap();
            prop_assert!(bytes == piece(&source, number));
        }
        drop(store);

        // It comes back, and some of its files are gone: only their pieces are missing.
        let mut rng = Rng::new(lost);
        let mut missing = PieceSet::none(count);
        for (index, entry) in source.manifest().entries().iter().enumerate() {
            let path = source.manifest().path(index as u32);
            // One that lacks what is directly in it would not be taken for the tree: then it is a folder to put the tree into.
            let is_kept = shape == 1 && entry.parent == Some(0);
            if matches!(entry.kind(), EntryKind::Directory) || is_kept || rng.below(4) > 0 {
                continue;
            }
            let below = if shape == 1 { path.strip_prefix("tree").unwrap() } else { &path };
            fs::remove_file(to.join(below)).unwrap();
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

/// A process that is being started has, for a moment, all that its parent has.
#[test]
fn a_child_that_is_being_started_does_not_keep_the_folder_locked() {
    use std::os::unix::process::CommandExt;
    let temp = Temp::new();
    let source = file(&temp, "file", 40_000);
    let store = open(&source, &temp.join("to")).unwrap();
    complete_but_one(&source, &store);
    let (ready, is_forked) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let (mut done, may_go_on) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let mut child = std::process::Command::new("true");
    // SAFETY: reads and writes only.
    unsafe {
        child.pre_exec(move || {
            (&ready).write_all(&[1])?;
            (&may_go_on).read_exact(&mut [0])
        })
    };
    let starting = std::thread::spawn(move || child.status());
    (&is_forked).read_exact(&mut [0]).unwrap();
    drop(store);
    let again = open(&source, &temp.join("to"));
    done.write_all(&[1]).unwrap();
    assert!(starting.join().unwrap().unwrap().success());
    assert_eq!(complete(&source, &again.unwrap()), 1);
}

/// A tree that gets the destination's name: the second time there is a directory of that name.
#[test]
fn a_tree_does_not_go_into_itself() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    fs::write(temp.join("from/tree/file"), content(3, 30_000)).unwrap();
    let source = source(&[temp.join("from/tree")]);
    let below = |path: &str| {
        let root = temp.join("to");
        let destination = Destination::Below { root: &root, path: Path::new(path) };
        TreeStore::open(source.manifest().clone(), destination, TreeOptions::default()).unwrap()
    };
    for open in [&(|| open(&source, &temp.join("to/new")).unwrap()) as &dyn Fn() -> TreeStore, &(|| below("new/"))] {
        let store = open();
        store.write(0, &piece(&source, 0)).unwrap();
        drop(store);
        // Stopped right after it began to give names: something is in the way of the only file.
        let store = open();
        assert_eq!(complete(&source, &store), 1);
        fs::create_dir_all(temp.join("to/new/file/full")).unwrap();
        assert_eq!(store.finish().unwrap().failed_count, 1);
        drop(store);
        fs::remove_dir_all(temp.join("to/new/file")).unwrap();
        let store = open();
        assert!(store.held().is_full());
        finish(&store);
        drop(store);
        let store = open();
        assert!(store.held().is_full());
        finish(&store);
        drop(store);
        assert_eq!(snapshot(&temp.join("to/new")), snapshot(&temp.join("from/tree")));
        assert_eq!(names(&temp.join("to")), ["new"]);
        // Another folder beside it is just a folder.
        fs::create_dir(temp.join("to/folder")).unwrap();
        assert!(super::tests::open(&source, &temp.join("to/folder")).unwrap().held().is_empty());
        fs::remove_dir(temp.join("to/folder")).unwrap();
        // It is not the tree any more: now the tree goes into it.
        fs::write(temp.join("to/new/file"), "other").unwrap();
        let store = open();
        assert_eq!(complete(&source, &store), 2);
        finish(&store);
        assert_eq!(names(&temp.join("to/new")), ["file", "tree"]);
        assert_eq!(snapshot(&temp.join("to/new/tree")), snapshot(&temp.join("from/tree")));
        fs::remove_dir_all(temp.join("to/new")).unwrap();
    }
}

/// A host that is stopped while its files get their names.
#[test]
fn a_half_finished_end_goes_on() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    for name in ["a", "b", "c", "empty"] {
        fs::write(temp.join("from/tree").join(name), content(3, if name == "empty" { 0 } else { 30_000 })).unwrap();
    }
    let source = source(&[temp.join("from/tree")]);
    let to = temp.join("to");
    let store = open(&source, &to).unwrap();
    complete(&source, &store);
    // Something gets in the way of one file, so that the others are done and it is not.
    fs::create_dir_all(temp.join("to/tree/b/full")).unwrap();
    let report = store.finish().unwrap();
    assert_eq!((report.files, report.failed_count), (3, 1), "{report:?}");
    assert!(report.failed[0].reason.contains("a directory of that name"), "{report:?}");
    assert_eq!(names(&temp.join("to/tree")), ["a", "b", "c", "empty"]);
    drop(store);
    let error = open(&source, &to).unwrap_err();
    assert!(error.to_string().contains("tree/b: there is a directory"), "{error}");
    fs::remove_dir_all(temp.join("to/tree/b")).unwrap();
    // Its owner's rights are gone already.
    let hidden = names(&to).into_iter().find(|n| n.starts_with(".multirail-")).unwrap();
    let part = to.join(hidden).join("2");
    fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let store = open(&source, &to).unwrap();
    assert!(store.held().is_full(), "all of it is there, under one name or another");
    finish(&store);
    assert_eq!(snapshot(&temp.join("to/tree")), snapshot(&temp.join("from/tree")));
    assert_eq!(names(&to), ["tree"]);
}

/// What looks like the file and is not, where a piece lies in two files.
#[test]
fn a_file_that_only_looks_right_is_replaced() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(temp.join("from/tree").join(name), content(3, 40_000)).unwrap();
    }
    let source = source(&[temp.join("from/tree")]);
    let store = open(&source, &temp.join("to")).unwrap();
    complete(&source, &store);
    finish(&store);
    drop(store);
    let (path, b) = (temp.join("to/tree/a"), temp.join("to/tree/b"));
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let change = File::options().write(true).open(&path).unwrap();
    change.write_all_at(b"other", 39_000).unwrap();
    change.set_modified(modified).unwrap();
    fs::remove_file(b).unwrap();
    let other = fs::read(&path).unwrap();
    let store = open(&source, &temp.join("to")).unwrap();
    assert_eq!(store.held().iter().collect::<Vec<_>>(), [0, 1], "the pieces before the one that is changed");
    assert_eq!(complete(&source, &store), 3);
    assert!(fs::read(&path).unwrap() == other, "it is not touched before the end");
    finish(&store);
    assert_eq!(snapshot(&temp.join("to/tree")), snapshot(&temp.join("from/tree")));
    // The same, and it changes while the store relies on it.
    change_again(&temp, &source);
}

fn change_again(temp: &Temp, source: &SourceStore) {
    fs::remove_file(temp.join("to/tree/b")).unwrap();
    let store = open(source, &temp.join("to")).unwrap();
    assert_eq!(store.held().iter().collect::<Vec<_>>(), [0, 1]);
    let path = temp.join("to/tree/a");
    fs::write(&path, "short").unwrap();
    let missing = PieceSet::all(5).without(&store.held()).collect::<Vec<_>>();
    let errors: Vec<_> = missing.iter().filter_map(|n| store.write(*n, &piece(source, *n)).err()).collect();
    assert!(matches!(&errors[..], [StoreError::Changed { path, .. }] if path.ends_with("tree/a")), "{errors:?}");
    assert!(matches!(store.finish(), Err(StoreError::Incomplete { missing: 1 })));
    drop(store);
    let store = open(source, &temp.join("to")).unwrap();
    complete(source, &store);
    finish(&store);
    assert_eq!(snapshot(&temp.join("to/tree")), snapshot(&temp.join("from/tree")));
}

/// How many files below `temp` this process has open for writing.
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
        // Or a program that was just received could not be run.
        assert_eq!(open_for_writing(&temp), 0);
        assert_eq!(snapshot(&temp.join(arrived)), snapshot(&temp.join("from/file")));
    }
    // Below a served folder.
    fs::create_dir(temp.join("to/sub")).unwrap();
    for (path, arrived) in [("sub", "to/sub/file"), ("sub/name", "to/sub/name")] {
        let (root, path) = (temp.join("to"), Path::new(path));
        let manifest = source.manifest().clone();
        let destination = Destination::Below { root: &root, path };
        let store = TreeStore::open(manifest, destination, TreeOptions { sync: true }).unwrap();
        complete(&source, &store);
        finish(&store);
        assert_eq!(snapshot(&temp.join(arrived)), snapshot(&temp.join("from/file")));
    }
    assert_eq!(names(&temp.join("to")), ["file", "other", "sub"]);
}

#[test]
fn a_store_that_is_not_used_leaves_nothing() {
    let temp = Temp::new();
    let source = file(&temp, "file", 100_000);
    drop(open(&source, &temp.join("to")).unwrap());
    assert_eq!(names(&temp.join("to")), [""; 0]);
    let store = open(&source, &temp.join("to")).unwrap();
    store.write(1, &piece(&source, 1)).unwrap();
    store.discard().unwrap();
    store.discard().unwrap();
    assert_eq!(names(&temp.join("to")), [""; 0]);
    assert!(store.held().is_empty());
    assert_eq!(store.write(1, &piece(&source, 1)), Err(StoreError::NotHeld { piece: 1 }));
    assert!(matches!(store.finish(), Err(StoreError::Incomplete { missing: 7 })));
}

#[test]
fn nothing_is_written_elsewhere() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    fs::write(temp.join("from/tree/file"), content(1, 20_000)).unwrap();
    let source = source(&[temp.join("from/tree")]);
    let root = temp.join("to");
    let below = |path: &str| {
        let destination = Destination::Below { root: &root, path: Path::new(path) };
        TreeStore::open(source.manifest().clone(), destination, TreeOptions::default())
    };
    for path in ["..", "/tmp", "../from", "a/../..", "missing/name", "x.multirail-part"] {
        let error = below(path).unwrap_err();
        assert!(matches!(error, StoreError::Destination(_)), "{path}: {error}");
    }
    // Symlinks that lead out: of the destination, of a directory on the way.
    std::os::unix::fs::symlink(temp.join("from"), temp.join("to/out")).unwrap();
    assert!(below("out").is_err() && below("out/name").is_err());
    fs::create_dir(temp.join("outside")).unwrap();
    std::os::unix::fs::symlink(temp.join("outside"), temp.join("to/tree")).unwrap();
    let error = below("").unwrap_err();
    assert!(error.to_string().contains("leads out"), "{error}");
    fs::remove_file(temp.join("to/tree")).unwrap();
    // The same, a moment later.
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
fn a_file_in_the_way_of_a_directory_is_told_at_once() {
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
fn two_stores_do_not_share_parts() {
    let temp = Temp::new();
    let source = file(&temp, "file", 100_000);
    let first = open(&source, &temp.join("to")).unwrap();
    let error = open(&source, &temp.join("to")).unwrap_err();
    assert!(matches!(&error, StoreError::Busy { path } if *path == temp.join("to")), "{error}");
    first.write(3, &piece(&source, 3)).unwrap();
    drop(first);
    let second = open(&source, &temp.join("to")).unwrap();
    assert_eq!(second.held().iter().collect::<Vec<_>>(), [3]);
    // Another transfer does not mind.
    let other = file(&temp, "other", 50_000);
    let third = open(&other, &temp.join("to")).unwrap();
    complete(&source, &second);
    complete(&other, &third);
    finish(&third);
    finish(&second);
    assert_eq!(names(&temp.join("to")), ["file", "other"]);
    // Nor can somebody else prepare the folder.
    let hidden = format!(".multirail-{}.multirail-part", &source.manifest().id_hex()[..32]);
    fs::create_dir(temp.join("to").join(&hidden)).unwrap();
    fs::set_permissions(temp.join("to").join(&hidden), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    assert!(open(&source, &temp.join("to")).unwrap_err().to_string().contains("open to others"));
}

#[test]
fn what_does_not_belong_in_the_hidden_folder_goes() {
    let temp = Temp::new();
    let source = file(&temp, "file", 100_000);
    let store = open(&source, &temp.join("to")).unwrap();
    complete(&source, &store);
    drop(store);
    let hidden = temp.join("to").join(&names(&temp.join("to"))[0]);
    for name in ["1", "00", "-", "99999999999999", "x"] {
        fs::write(hidden.join(name), "x").unwrap();
    }
    // Longer and in one place wrong.
    let part = File::options().write(true).open(hidden.join("0")).unwrap();
    part.set_len(200_000).unwrap();
    part.write_all_at(b"wrong", 20_000).unwrap();
    let store = open(&source, &temp.join("to")).unwrap();
    assert_eq!(names(&hidden), ["0"]);
    assert_eq!(complete(&source, &store), 1);
    finish(&store);
    assert_eq!(snapshot(&temp.join("to/file")), snapshot(&temp.join("from/file")));
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
                        // One of them is first to see that all is there; the others still write.
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

/// A file system of its own, for this thread and its children, which goes with the thread.
fn with_disk(options: &str, test: impl FnOnce(&Temp) + Send) {
    let mount = |at: &Path| -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let at = std::ffi::CString::new(at.as_os_str().as_bytes())?;
        let options = std::ffi::CString::new(options)?;
        let check = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: all strings end in NUL; only this thread leaves the namespace.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
            check(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
            check(libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast()))
        }
    };
    // Removed by this thread, for which nothing is mounted there.
    let temp = Temp::new();
    std::thread::scope(|scope| {
        scope.spawn(|| match mount(&temp.join("to")) {
            Ok(()) => test(&temp),
            Err(error) => eprintln!("skipped: no tmpfs of its own ({error})"),
        });
    });
}

#[test]
fn a_disk_that_is_too_small_is_told_before_anything_is_written() {
    with_disk("size=256k", |temp| {
        let (fits, does_not) = (file(temp, "fits", 256 << 10), file(temp, "large", (256 << 10) + 1));
        let error = open(&does_not, &temp.join("to")).unwrap_err();
        let expected = StoreError::NoRoom { path: temp.join("to"), needed_bytes: 260 << 10, free_bytes: 256 << 10 };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("needs 260 KiB, "), "{error}");
        assert_eq!(names(&temp.join("to")), [""; 0]);
        let store = open(&fits, &temp.join("to")).unwrap();
        complete(&fits, &store);
        drop(store);
        // What is there already does not need room.
        let store = open(&fits, &temp.join("to")).unwrap();
        finish(&store);
        drop(store);
        let store = open(&fits, &temp.join("to")).unwrap();
        assert!(store.held().is_full());
    });
}

#[test]
fn a_disk_without_room_for_files_is_told_too() {
    // One for the folder itself and one for the hidden one.
    for (inodes, fine) in [(6, false), (7, true)] {
        with_disk(&format!("nr_inodes={inodes}"), |temp| {
            for name in 0..4 {
                fs::create_dir_all(temp.join("from/tree")).unwrap();
                fs::write(temp.join("from/tree").join(name.to_string()), "x").unwrap();
            }
            let source = source(&[temp.join("from/tree")]);
            match open(&source, &temp.join("to")) {
                Ok(store) => {
                    assert!(fine);
                    complete(&source, &store);
                    finish(&store);
                }
                Err(error) => assert!(
                    !fine && matches!(error, StoreError::NoRoomForFiles { needed: 5, free: 4, .. }),
                    "{error:?}"
                ),
            }
        });
    }
}

#[test]
fn a_disk_that_gets_full_is_an_error_that_passes() {
    with_disk("size=512k", |temp| {
        let source = file(temp, "file", 256 << 10);
        let store = open(&source, &temp.join("to")).unwrap();
        store.write(0, &piece(&source, 0)).unwrap();
        let filler = temp.join("to/filler");
        assert_eq!(fs::write(&filler, vec![1; 1 << 20]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let error = store.write(5, &piece(&source, 5)).unwrap_err();
        assert_eq!(error, StoreError::Full { path: temp.join("to/file") });
        assert!(error.to_string().contains("no space left"), "{error}");
        assert!(!store.held().contains(5));
        fs::remove_file(filler).unwrap();
        complete(&source, &store);
        finish(&store);
        assert_eq!(snapshot(&temp.join("to/file")), snapshot(&temp.join("from/file")));
    });
}
