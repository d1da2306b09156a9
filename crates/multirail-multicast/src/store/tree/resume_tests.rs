//! Opening a store again, and ownership of its hidden folder.

use super::testing::{complete, complete_but_one, file, finish, open, piece, source};
use super::*;
use crate::store::source::SourceStore;
use crate::store::testing::{Temp, content, names, snapshot};
use std::fs;
use std::io::{Read, Write};

/// A process that is being started briefly holds all descriptors of its parent.
#[test]
fn a_starting_child_does_not_keep_the_folder_locked() {
    use std::os::unix::process::CommandExt;
    let temp = Temp::new();
    let source = file(&temp, "file", 40_000);
    let store = open(&source, &temp.join("to")).unwrap();
    complete_but_one(&source, &store);
    let (ready, is_forked) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let (mut done, may_go_on) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let mut child = std::process::Command::new("true");
    // SAFETY: the pointers are valid for reads and writes.
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

/// The destination is a directory only after the first time.
#[test]
fn a_tree_goes_to_the_same_place_again() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    fs::write(temp.join("from/tree/file"), content(3, 30_000)).unwrap();
    let source = source(&[temp.join("from/tree")]);
    let below = |path: &str| {
        let root = temp.join("to");
        let destination = Destination { root: &root.as_path().into(), path: Path::new(path) };
        TreeStore::open(source.manifest().clone(), destination, TreeOptions::default()).unwrap()
    };
    for open in [&(|| open(&source, &temp.join("to/new")).unwrap()) as &dyn Fn() -> TreeStore, &(|| below("new/"))] {
        let store = open();
        store.write(0, &piece(&source, 0)).unwrap();
        drop(store);
        // The store stops right after it began to give names: a directory blocks the name of the
        // only file.
        let store = open();
        assert_eq!(complete(&source, &store), 1);
        fs::create_dir_all(temp.join("to/new/tree/file/full")).unwrap();
        assert_eq!(store.finish().unwrap().failed_count, 1);
        drop(store);
        fs::remove_dir_all(temp.join("to/new/tree/file")).unwrap();
        let store = open();
        assert!(store.held().is_full());
        finish(&store);
        drop(store);
        let store = open();
        assert!(store.held().is_full());
        finish(&store);
        drop(store);
        assert_eq!(snapshot(&temp.join("to/new/tree")), snapshot(&temp.join("from/tree")));
        assert_eq!(names(&temp.join("to")), ["new"]);
        // Another folder beside it is unaffected.
        fs::create_dir(temp.join("to/folder")).unwrap();
        assert!(testing::open(&source, &temp.join("to/folder")).unwrap().held().is_empty());
        fs::remove_dir(temp.join("to/folder")).unwrap();
        // Also after a change there.
        fs::write(temp.join("to/new/tree/file"), "other").unwrap();
        let store = open();
        assert_eq!(complete(&source, &store), 2);
        finish(&store);
        assert_eq!(names(&temp.join("to/new")), ["tree"]);
        assert_eq!(snapshot(&temp.join("to/new/tree")), snapshot(&temp.join("from/tree")));
        fs::remove_dir_all(temp.join("to/new")).unwrap();
    }
}

/// A host that is stopped while it names its files.
#[test]
fn an_interrupted_finish_resumes() {
    let temp = Temp::new();
    fs::create_dir(temp.join("from/tree")).unwrap();
    for name in ["a", "b", "c", "empty"] {
        fs::write(temp.join("from/tree").join(name), content(3, if name == "empty" { 0 } else { 30_000 })).unwrap();
    }
    let source = source(&[temp.join("from/tree")]);
    let to = temp.join("to");
    let store = open(&source, &to).unwrap();
    complete(&source, &store);
    // A directory blocks the name of one file, so that only the others get theirs.
    fs::create_dir_all(temp.join("to/tree/b/full")).unwrap();
    let report = store.finish().unwrap();
    assert_eq!((report.files, report.failed_count), (3, 1), "{report:?}");
    assert!(report.failed[0].reason.contains("a directory of that name"), "{report:?}");
    assert_eq!(names(&temp.join("to/tree")), ["a", "b", "c", "empty"]);
    drop(store);
    let error = open(&source, &to).unwrap_err();
    assert!(error.to_string().contains("tree/b: there is a directory"), "{error}");
    fs::remove_dir_all(temp.join("to/tree/b")).unwrap();
    // The owner has already lost the permissions.
    let hidden = names(&to).into_iter().find(|n| n.starts_with(".multirail-")).unwrap();
    let part = to.join(hidden).join("2");
    fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let store = open(&source, &to).unwrap();
    assert!(store.held().is_full(), "all pieces are found, under hidden or final names");
    finish(&store);
    assert_eq!(snapshot(&temp.join("to/tree")), snapshot(&temp.join("from/tree")));
    assert_eq!(names(&to), ["tree"]);
}

/// A file with the right length and time but other content, where a piece spans two files.
#[test]
fn a_file_with_right_metadata_and_other_content_is_replaced() {
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
    assert_eq!(store.held().iter().collect::<Vec<_>>(), [0, 1], "the pieces before the changed one");
    assert_eq!(complete(&source, &store), 3);
    assert!(fs::read(&path).unwrap() == other, "it is unchanged until the end");
    finish(&store);
    assert_eq!(snapshot(&temp.join("to/tree")), snapshot(&temp.join("from/tree")));
    // The same with a change while the store relies on the file.
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

#[test]
fn two_stores_do_not_share_parts() {
    let temp = Temp::new();
    let source = file(&temp, "file", 100_000);
    let first = open(&source, &temp.join("to")).unwrap();
    let error = open(&source, &temp.join("to")).unwrap_err();
    assert!(matches!(&error, StoreError::Busy { path } if path == Path::new("to")), "{error}");
    first.write(3, &piece(&source, 3)).unwrap();
    drop(first);
    let second = open(&source, &temp.join("to")).unwrap();
    assert_eq!(second.held().iter().collect::<Vec<_>>(), [3]);
    // A transfer of other data is unaffected.
    let other = file(&temp, "other", 50_000);
    let third = open(&other, &temp.join("to")).unwrap();
    complete(&source, &second);
    complete(&other, &third);
    finish(&third);
    finish(&second);
    assert_eq!(names(&temp.join("to")), ["file", "other"]);
    // Another user cannot prepare the folder.
    let hidden = format!(".multirail-{}.multirail-part", &source.manifest().id_hex()[..32]);
    fs::create_dir(temp.join("to").join(&hidden)).unwrap();
    fs::set_permissions(temp.join("to").join(&hidden), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    assert!(open(&source, &temp.join("to")).unwrap_err().to_string().contains("open to others"));
}

#[test]
fn foreign_files_in_the_hidden_folder_are_removed() {
    let temp = Temp::new();
    let source = file(&temp, "file", 100_000);
    let store = open(&source, &temp.join("to")).unwrap();
    complete(&source, &store);
    drop(store);
    let hidden = temp.join("to").join(&names(&temp.join("to"))[0]);
    for name in ["1", "00", "-", "99999999999999", "x"] {
        fs::write(hidden.join(name), "x").unwrap();
    }
    // A longer file with one wrong byte range.
    let part = File::options().write(true).open(hidden.join("0")).unwrap();
    part.set_len(200_000).unwrap();
    part.write_all_at(b"wrong", 20_000).unwrap();
    let store = open(&source, &temp.join("to")).unwrap();
    assert_eq!(names(&hidden), ["0"]);
    assert_eq!(complete(&source, &store), 1);
    finish(&store);
    assert_eq!(snapshot(&temp.join("to/file")), snapshot(&temp.join("from/file")));
}
