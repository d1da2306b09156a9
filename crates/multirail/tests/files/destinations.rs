//! Sources and destinations mean the same as with `rsync`.

use super::support::{Described, Temp, Way, copy_with, describe, get, only_failure, pattern, put, refused, write};
use multirail::files::{Cause, Options, Side};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

#[test]
fn destinations_follow_the_rule_of_rsync() {
    let temp = Temp::new();
    write(temp.local("a"), 10);
    write(temp.local("b"), 20);
    write(temp.local("dir/c"), 30);
    write(temp.served("file"), 1);
    std::fs::create_dir(temp.served("into")).unwrap();

    for (sources, to) in [
        (&["a"][..], "into"),
        (&["dir"], "into/"),
        (&["dir/"], "into"),
        (&["a", "b"], ""),
        (&["a"], "file"),
        (&["a"], "other"),
        (&["dir"], "new"),
        (&["dir/"], "content"),
        (&["dir/."], "content2"),
        (&["a"], "absent/"),
        (&["a", "dir/"], "both"),
    ] {
        assert!(put(&temp, sources, to).unwrap().is_success(), "{sources:?} {to}");
        let once = describe(&temp.served(""));
        // The same again goes to the same place.
        assert!(put(&temp, sources, to).unwrap().is_success(), "{sources:?} {to}");
        let names = |tree: Vec<Described>| tree.into_iter().map(|d| d.0).collect::<Vec<_>>();
        assert_eq!(names(describe(&temp.served(""))), names(once), "{sources:?} {to}");
    }
    for (path, bytes) in [
        ("into/a", 10),
        ("into/dir/c", 30),
        ("into/c", 30),
        ("a", 10),
        ("b", 20),
        ("file", 10),
        ("other", 10),
        ("new/dir/c", 30),
        ("content/c", 30),
        ("content2/c", 30),
        ("absent/a", 10),
        ("both/a", 10),
        ("both/c", 30),
    ] {
        assert_eq!(std::fs::metadata(temp.served(path)).unwrap().len(), bytes, "{path}");
    }
    refused(put(&temp, &["a", "b"], "file"), "file is a file, not a directory");
    refused(put(&temp, &["a"], "file/"), "not a directory");
    refused(put(&temp, &["a"], "nowhere/a"), "no directory to put nowhere/a in");
    refused(put(&temp, &["a", "dir/../a"], ""), "two sources are called a");
    refused(put(&temp, &["dir/", "dir/."], ""), "the content of two sources");
    let over_file = put(&temp, &["dir"], "file").unwrap();
    assert_eq!(over_file.files, 0, "{over_file:?}");
    assert_eq!(std::fs::metadata(temp.served("file")).unwrap().len(), 10);

    for (sources, to) in [
        (&["into/a", "new"][..], ""),
        (&["."], "all"),
        (&["new/"], "content"),
        (&["new"], "named"),
        (&["a"], "renamed"),
        (&["a", "b"], "several"),
    ] {
        for _ in 0..2 {
            assert!(get(&temp, sources, to).unwrap().is_success(), "{sources:?} {to}");
        }
    }
    for path in ["new/dir/c", "all/into/dir/c", "content/dir/c", "named/new/dir/c"] {
        assert_eq!(std::fs::read(temp.local(path)).unwrap(), pattern(30), "{path}");
    }
    assert_eq!(std::fs::read(temp.local("renamed")).unwrap(), pattern(10));
    assert_eq!(std::fs::read(temp.local("several/b")).unwrap(), pattern(20));
    assert!(!temp.local("named/new/new").exists() && !temp.local("content/new").exists());
    let slash = get(&temp, &["a/"], "").unwrap();
    only_failure(&slash, Side::Server, Cause::Read, "Not a directory");
}

/// The destination itself is made as by `mkdir`. It is the user's, and no copy of a source.
#[test]
fn the_destination_keeps_its_own_mode() {
    let temp = Temp::new();
    write(temp.local("dir/c"), 30);
    std::fs::set_permissions(temp.local("dir"), std::fs::Permissions::from_mode(0o711)).unwrap();
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let usual = mode(temp.local(""));
    assert_ne!(usual, 0o711);
    for _ in 0..2 {
        assert!(put(&temp, &["dir/"], "content").unwrap().is_success());
        assert!(put(&temp, &["dir"], "named").unwrap().is_success());
        assert_eq!((mode(temp.served("content")), mode(temp.served("named"))), (usual, usual));
        assert_eq!(mode(temp.served("named/dir")), 0o711);
    }
}

#[test]
fn a_directory_requires_the_recursive_option() {
    let temp = Temp::new();
    write(temp.local("dir/c"), 30);
    write(temp.local("a"), 30);
    let plain = Options::default();
    let sources = [temp.local("dir"), temp.local("a")];
    let report = copy_with(&temp, 1, Way::Put, &sources, Path::new(""), &plain).unwrap();
    only_failure(&report, Side::Client, Cause::Read, "could not read dir: it is a directory; copy those with -r");
    assert!(temp.served("a").exists() && !temp.served("dir").exists());
    let report = copy_with(&temp, 1, Way::Get, &["".into()], &temp.local(""), &plain).unwrap();
    only_failure(&report, Side::Server, Cause::Read, "it is a directory");
}

#[test]
fn a_destination_symlink_is_replaced_and_not_followed() {
    let temp = Temp::new();
    write(temp.served("a"), 30);
    write(temp.outside("target"), 10);
    symlink(temp.outside("target"), temp.local("link")).unwrap();
    assert!(get(&temp, &["a"], "link").unwrap().is_success());
    assert_eq!(std::fs::read(temp.outside("target")).unwrap(), pattern(10));
    assert_eq!(std::fs::read(temp.local("link")).unwrap(), pattern(30));
}
