//! A copy that is repeated: what is unchanged is not sent, and what belongs to a tree arrives.

use super::support::{Temp, Way, copy_with, describe, pattern, recursive, write};
use multirail::files::{Change, Extras, Options, Report, Rule};
use multirail_testing::{Requirement, skip};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const SIZES: [usize; 6] = [0, 1, 50_000, 400_000, 3 << 20, 9 << 20];

/// Copies the tree `tree` into the folder `copy`.
fn copy(temp: &Temp, way: &Way, options: &Options) -> Report {
    match way {
        Way::Put => copy_with(temp, 1, Way::Put, &[temp.local("tree")], Path::new("copy"), options),
        Way::Get => copy_with(temp, 1, Way::Get, &[PathBuf::from("tree")], &temp.local("copy"), options),
    }
    .unwrap()
}

/// The tree and its copy.
fn ends(temp: &Temp, way: &Way) -> (PathBuf, PathBuf) {
    match way {
        Way::Put => (temp.local("tree"), temp.served("copy/tree")),
        Way::Get => (temp.served("tree"), temp.local("copy/tree")),
    }
}

fn make(tree: &Path) {
    for size in SIZES {
        write(tree.join(format!("a/{size}")), size);
        write(tree.join(format!("b/{size}")), size);
    }
}

/// Runs a test in both directions, with a tree on the source.
fn both_ways(test: impl Fn(&Temp, &Way, &Path, &Path)) {
    for way in [Way::Put, Way::Get] {
        let temp = Temp::new();
        let (tree, arrived) = ends(&temp, &way);
        make(&tree);
        test(&temp, &way, &tree, &arrived);
        assert!(temp.parts().is_empty());
    }
}

fn set_modified(path: &Path, modified: SystemTime) {
    std::fs::File::open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn unchanged_files_are_not_sent() {
    both_ways(|temp, way, tree, arrived| {
        let first = copy(temp, way, &recursive());
        assert_eq!((first.files, first.unchanged), (2 * SIZES.len() as u64, 0), "{first:?}");
        let second = copy(temp, way, &recursive());
        assert_eq!((second.files, second.bytes, second.unchanged), (0, 0, first.files), "{second:?}");
        // One of each size changes, and one gets another mode only.
        for size in SIZES {
            write(tree.join(format!("a/{size}")), size + 1);
        }
        std::fs::set_permissions(tree.join("b/50000"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let third = copy(temp, way, &recursive());
        assert_eq!((third.files, third.unchanged), (SIZES.len() as u64, SIZES.len() as u64), "{third:?}");
        assert_eq!(describe(tree), describe(arrived));
    });
}

#[test]
fn contents_are_compared_if_asked_for() {
    both_ways(|temp, way, tree, arrived| {
        copy(temp, way, &recursive());
        for size in SIZES.into_iter().filter(|size| *size > 0) {
            // Another content with the old time, and the old content with another time.
            let changed = tree.join(format!("a/{size}"));
            let modified = changed.metadata().unwrap().modified().unwrap();
            std::fs::write(&changed, vec![7; size]).unwrap();
            set_modified(&changed, modified);
            set_modified(&tree.join(format!("b/{size}")), modified + Duration::from_secs(9));
        }
        let report = copy(temp, way, &recursive().by_content(true));
        assert_eq!((report.files, report.unchanged), (5, 7), "{report:?}");
        assert_eq!(describe(tree), describe(arrived));
    });
}

#[test]
fn links_holes_and_any_names_arrive() {
    both_ways(|temp, way, tree, arrived| {
        symlink("a/nothing \u{1b}", tree.join("link")).unwrap();
        std::fs::hard_link(tree.join("a/50000"), tree.join("b/hard")).unwrap();
        std::fs::write(tree.join(std::ffi::OsStr::from_bytes(b"\xff\n\xfe")), "x").unwrap();
        for (name, length, at) in [("holes", 64 << 20, 30 << 20), ("empty", 16 << 20, 0), ("small", 300_000, 0)] {
            let file = std::fs::File::create(tree.join(name)).unwrap();
            if at > 0 {
                std::os::unix::fs::FileExt::write_all_at(&file, &pattern(9 << 20), at).unwrap();
            }
            file.set_len(length).unwrap();
        }
        let options = recursive().hard_links(true);
        for links in [2, 0] {
            let report = copy(temp, way, &options);
            assert_eq!((report.links, report.failed_count), (links, 0), "{report:?}");
        }
        assert_eq!(std::fs::read_link(arrived.join("link")).unwrap(), Path::new("a/nothing \u{1b}"));
        let inode = |path: PathBuf| path.metadata().unwrap().ino();
        assert_eq!(inode(arrived.join("a/50000")), inode(arrived.join("b/hard")));
        let room = |name: &str| arrived.join(name).metadata().unwrap().blocks() * 512;
        assert!(room("holes") < 12 << 20 && room("empty") + room("small") < 1 << 20);
        std::fs::remove_file(tree.join("link")).unwrap();
        std::fs::remove_file(arrived.join("link")).unwrap();
        set_modified(arrived, tree.metadata().unwrap().modified().unwrap());
        assert_eq!(describe(tree), describe(arrived));
    });
}

#[test]
fn owner_and_attributes_arrive_if_asked_for() {
    both_ways(|temp, way, tree, arrived| {
        let file = tree.join("a/50000");
        let set = |value: &[u8]| {
            let name = c"user.multirail";
            let path = std::ffi::CString::new(file.as_os_str().as_bytes()).unwrap();
            // SAFETY: both texts end in NUL, and the value is valid for its length.
            unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) }
        };
        if set(b"one") != 0 {
            return;
        }
        let has = |value: &[u8]| {
            let mut buffer = [0; 64];
            let path = std::ffi::CString::new(arrived.join("a/50000").as_os_str().as_bytes()).unwrap();
            let name = c"user.multirail";
            // SAFETY: both texts end in NUL, and the buffer is writable for its length.
            let got = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
            usize::try_from(got).is_ok_and(|length| &buffer[..length] == value)
        };
        let options = recursive().extras(Extras { xattrs: true, owner: true, ..Extras::default() });
        copy(temp, way, &recursive());
        assert!(!has(b"one"), "not asked for");
        let report = copy(temp, way, &options);
        assert_eq!((report.files, report.failed_count), (0, 0), "only properties are sent: {report:?}");
        assert!(has(b"one"));
        assert_eq!(set(b"two"), 0);
        copy(temp, way, &options);
        assert!(has(b"two"));
        assert_eq!(describe(tree), describe(arrived));
    });
}

/// An access control list in the form of the kernel's `system.posix_acl_*`: the user 1234 may read.
fn access_control_list() -> Vec<u8> {
    const NO_NUMBER: u32 = u32::MAX;
    // The owner, the user, the group, the mask and others: tag, rights and number.
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, NO_NUMBER), (2, 4, 1234), (4, 4, NO_NUMBER), (16, 4, NO_NUMBER), (32, 0, NO_NUMBER)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, number) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(number.to_le_bytes());
    }
    list
}

#[test]
fn access_control_lists_arrive_if_asked_for() {
    let list = access_control_list();
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    both_ways(|temp, way, tree, arrived| {
        let names = [("a/50000", c"system.posix_acl_access"), ("a", c"system.posix_acl_default")];
        for (entry, name) in names {
            let path = text(&tree.join(entry));
            // SAFETY: both texts end in NUL, and the value is valid for its length.
            if unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), list.as_ptr().cast(), list.len(), 0) } != 0 {
                let why = std::io::Error::last_os_error();
                return skip(Requirement::Acls, format!("cannot set an access control list: {why}"));
            }
        }
        let has = |entry: &str, name: &std::ffi::CStr| {
            let (mut buffer, path) = ([0; 256], text(&arrived.join(entry)));
            // SAFETY: both texts end in NUL, and the buffer is writable for its length.
            let got = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
            usize::try_from(got).is_ok_and(|length| buffer[..length] == list)
        };
        copy(temp, way, &recursive());
        assert!(names.iter().all(|(entry, name)| !has(entry, name)), "not asked for");
        let report = copy(temp, way, &recursive().extras(Extras { acls: true, ..Extras::default() }));
        assert_eq!((report.files, report.failed_count), (0, 0), "only properties are sent: {report:?}");
        assert!(names.iter().all(|(entry, name)| has(entry, name)));
        assert_eq!(describe(tree), describe(arrived));
    });
}

fn exclude(pattern: &str) -> Rule {
    Rule { include: false, pattern: pattern.to_owned() }
}

#[test]
fn what_the_source_has_not_is_deleted_if_asked_for() {
    both_ways(|temp, way, tree, arrived| {
        copy(temp, way, &recursive());
        write(arrived.join("a/extra"), 10);
        write(arrived.join("extra/below/file"), 10);
        write(arrived.join("extra/below/kept.keep"), 10);
        write(arrived.join("b/kept.keep"), 10);
        symlink("/", arrived.join("b/link")).unwrap();
        write(arrived.parent().unwrap().join("beside"), 10);
        let options = recursive().rules(vec![exclude("*.keep")]);
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = told.clone();
        let dry = options.clone().delete(true).dry_run(Some(Arc::new(move |change, path: &Path| {
            tell.lock().unwrap().push((change, path.to_owned()));
        })));
        copy(temp, way, &dry);
        let mut told = std::mem::take(&mut *told.lock().unwrap());
        told.sort_by(|one, other| one.1.cmp(&other.1));
        let deleted = ["tree/a/extra", "tree/b/link", "tree/extra"].map(|path| (Change::Delete, PathBuf::from(path)));
        assert_eq!(told, deleted);
        assert_eq!(copy(temp, way, &options).deleted, 0);
        let report = copy(temp, way, &options.delete(true));
        // A directory stays with what the rules keep.
        assert_eq!((report.deleted, report.failed_count), (3, 1), "{report:?}");
        assert!(arrived.join("extra/below/kept.keep").exists() && arrived.join("b/kept.keep").exists());
        assert!(arrived.parent().unwrap().join("beside").exists());
        std::fs::remove_dir_all(arrived.join("extra")).unwrap();
        let report = copy(temp, way, &recursive().delete(true));
        assert_eq!((report.deleted, report.failed_count), (1, 0), "{report:?}");
        assert_eq!(describe(tree), describe(arrived));
    });
}

#[test]
fn nothing_is_deleted_if_the_source_was_not_read_whole() {
    let temp = Temp::new();
    let way = Way::Put;
    let (tree, arrived) = ends(&temp, &way);
    make(&tree);
    copy(&temp, &way, &recursive());
    write(arrived.join("a/extra"), 10);
    let sources = [tree, temp.local("absent")];
    let options = recursive().delete(true);
    let report = copy_with(&temp, 1, Way::Put, &sources, Path::new("copy"), &options).unwrap();
    assert_eq!((report.deleted, report.failed_count), (0, 2), "{report:?}");
    assert!(arrived.join("a/extra").exists());
}

#[test]
fn a_dry_run_tells_what_would_be_done_and_does_nothing() {
    both_ways(|temp, way, tree, arrived| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let run = || {
            let tell = told.clone();
            let dry =
                recursive().rules(vec![exclude("/tree/b")]).dry_run(Some(Arc::new(move |change, path: &Path| {
                    tell.lock().unwrap().push((change, path.to_owned()));
                })));
            let report = copy(temp, way, &dry);
            assert_eq!((report.files, report.failed_count), (0, 0), "{report:?}");
            let mut told = std::mem::take(&mut *told.lock().unwrap());
            told.sort_by(|one, other| one.1.cmp(&other.1));
            told
        };
        let first = run();
        assert_eq!(first[0], (Change::Directory, PathBuf::from("tree")));
        assert_eq!(first.len(), 2 + SIZES.len(), "{first:?}");
        assert!(!arrived.parent().unwrap().exists(), "the destination was made");
        copy(temp, way, &recursive());
        std::fs::set_permissions(tree.join("a/1"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_file(arrived.join("a/50000")).unwrap();
        let expected =
            [(Change::Properties, "tree/a/1"), (Change::Send, "tree/a/50000")].map(|(c, p)| (c, PathBuf::from(p)));
        assert_eq!(run(), expected);
    });
}
