//! No path and no symlink leads out of the served folder.

use super::support::{Temp, get, only_failure, pattern, put, refused, write};
use multirail::files::{Cause, CopyError, PART_SUFFIX, Side};
use std::os::unix::fs::symlink;
use std::path::Path;

#[test]
fn paths_that_lead_out_are_refused() {
    let temp = Temp::new();
    write(temp.outside("secret"), 10);
    write(temp.local("a"), 10);
    for bad in ["../outside/secret", "/etc/hostname", "x/../../outside/secret", "x//y", "a\0b", ".."] {
        let report = get(&temp, &[bad], "").unwrap();
        assert_eq!((report.failed_count, report.failed[0].cause), (1, Cause::Refused), "{bad:?} {report:?}");
        assert!(matches!(put(&temp, &["a"], bad), Err(CopyError::Refused(_))), "{bad:?}");
    }
    let part = format!(".x.0123456789abcdef{PART_SUFFIX}");
    refused(put(&temp, &["a"], &part), "unfinished transfers");
    assert_eq!(std::fs::read_dir(temp.outside("")).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(temp.local("")).unwrap().count(), 1);
}

#[test]
fn symlinks_stay_below_the_root() {
    let temp = Temp::new();
    write(temp.outside("secret"), 10);
    write(temp.served("real/file"), 20);
    write(temp.local("a"), 30);
    symlink("../outside/secret", temp.served("link")).unwrap();
    symlink(temp.outside(""), temp.served("out")).unwrap();
    symlink("real", temp.served("in")).unwrap();
    symlink("/proc/self/root/etc", temp.served("magic")).unwrap();

    for bad in ["link", "out/secret", "magic/hostname"] {
        only_failure(&get(&temp, &[bad], "").unwrap(), Side::Server, Cause::Refused, "leads out");
        assert_eq!(std::fs::read_dir(temp.local("")).unwrap().count(), 1);
    }
    assert!(get(&temp, &["in/file"], "got").unwrap().is_success());
    assert_eq!(std::fs::read(temp.local("got")).unwrap(), pattern(20));

    for bad in ["out", "out/", "out/new"] {
        assert!(matches!(put(&temp, &["a"], bad), Err(CopyError::Refused(_))), "{bad}");
    }
    assert!(put(&temp, &["a"], "in/new").unwrap().is_success());
    assert_eq!(std::fs::read(temp.served("real/new")).unwrap(), pattern(30));
    // A symlink in the way of a tree's directory is not followed out either.
    write(temp.local("tree/out/b"), 5);
    let report = put(&temp, &["tree/."], "").unwrap();
    assert!(report.failed_count >= 1, "{report:?}");
    assert_eq!(std::fs::read_dir(temp.outside("")).unwrap().count(), 1);

    // In a tree they are copied as they are, and nothing is copied through them.
    let report = get(&temp, &["."], "all").unwrap();
    assert_eq!((report.links, report.skipped_count, report.failed_count), (4, 0, 0), "{report:?}");
    assert_eq!(std::fs::read_link(temp.local("all/link")).unwrap(), Path::new("../outside/secret"));
    write(temp.local("through/in/c"), 5);
    let report = put(&temp, &["through/."], "").unwrap();
    assert!(report.failed_count >= 1 && !temp.served("real/c").exists(), "{report:?}");
}
