//! A file that cannot be copied is named, and an interrupted copy leaves no file behind.

use super::support::{Temp, Way, config, copy_as, copy_with, get, hash, only_failure, put, server, write};
use multirail::files::{self, Cause, Options, Side};
use multirail::{Config, RateLimit, Session};
use multirail_testing::{Requirement, skip};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn special_files_are_neither_read_nor_replaced() {
    let temp = Temp::new();
    write(temp.local("tree/file"), 10);
    let make = |path: PathBuf| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    make(temp.local("tree/pipe"));
    make(temp.served("pipe"));
    let report = put(&temp, &["tree"], "").unwrap();
    assert_eq!((report.files, report.skipped_count, report.failed_count), (1, 1, 0));
    assert_eq!(report.skipped[0].what, "a special file");
    let report = put(&temp, &["tree/file"], "pipe").unwrap();
    only_failure(&report, Side::Server, Cause::Write, "there is a special file of that name");
    let report = get(&temp, &["pipe"], "").unwrap();
    assert_eq!((report.files, report.skipped_count), (0, 1));
}

#[test]
fn failures_are_named_and_the_other_files_are_copied() {
    let temp = Temp::new();
    for size in [10, 100_000] {
        write(temp.local(&format!("tree/good-{size}")), size);
        write(temp.local(&format!("tree/in-the-way-{size}")), size);
        std::fs::create_dir_all(temp.served(&format!("tree/in-the-way-{size}"))).unwrap();
    }
    let report = put(&temp, &["tree", "absent"], "").unwrap();
    assert_eq!((report.files, report.failed_count), (2, 3), "{report:?}");
    let mut texts: Vec<String> = report.failed.iter().map(ToString::to_string).collect();
    texts.sort();
    assert_eq!(texts[0], "the server could not write tree/in-the-way-100000: there is a directory of that name");
    assert_eq!(texts[1], "the server could not write tree/in-the-way-10: there is a directory of that name");
    assert_eq!(texts[2], "this host could not read absent: No such file or directory");
    assert!(temp.parts().is_empty());
}

/// Root reads everything but files of sysfs that can only be written to.
#[test]
fn an_unreadable_file_is_named() {
    let temp = Temp::new();
    write(temp.local("good"), 10);
    write(temp.local("locked"), 10);
    std::fs::set_permissions(temp.local("locked"), std::fs::Permissions::from_mode(0o000)).unwrap();
    // SAFETY: asks for this process's user.
    let root = unsafe { libc::geteuid() } == 0;
    let unreadable = if root { PathBuf::from("/sys/bus/platform/drivers_probe") } else { temp.local("locked") };
    let name = unreadable.file_name().unwrap().to_str().unwrap().to_owned();
    let sources = [unreadable, temp.local("good")];
    let report = copy_with(&temp, 1, Way::Put, &sources, Path::new(""), &Options::default()).unwrap();
    only_failure(&report, Side::Client, Cause::Read, &format!("this host could not read {name}: "));
    assert!(temp.served("good").exists() && !temp.served(&name).exists());
}

/// The kernel's own count of a small file system says when it is full.
#[test]
fn a_full_disk_is_named_and_the_other_files_are_copied() {
    let temp = Temp::new();
    let _mount = match Mount::tmpfs(&temp.served(""), "2m") {
        Ok(mount) => mount,
        Err(why) => return skip(Requirement::Tmpfs, format!("cannot mount a tmpfs: {why}")),
    };
    for (name, bytes) in [("asked-first", 9 << 20), ("large", 4 << 20), ("good", 10_000)] {
        write(temp.local(&format!("tree/{name}")), bytes);
    }
    let report = put(&temp, &["tree"], "").unwrap();
    assert_eq!((report.files, report.failed_count), (1, 2), "{report:?}");
    for failure in &report.failed {
        assert!(failure.to_string().ends_with(": No space left on device"), "{failure}");
        assert!(failure.to_string().starts_with("the server could not write tree/"), "{failure}");
    }
    assert_eq!(hash(&temp.served("tree/good")), hash(&temp.local("tree/good")));
    assert!(temp.parts().is_empty());
}

struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, size: &str) -> Result<Self, String> {
        let run = |command: &mut std::process::Command| match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        };
        run(std::process::Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(at))?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// 40 MiB a second.
fn limited() -> Config {
    config(1).rate_limit(RateLimit::new(Some(40 << 20)))
}

/// A disk that gets full in the middle ends the copy at once, and gets its room back.
#[test]
fn a_disk_that_gets_full_ends_the_copy() {
    const LENGTH: usize = 48 << 20;
    for way in [Way::Put, Way::Get] {
        let temp = Temp::new();
        let (from, mounted) = match way {
            Way::Put => (temp.local("big"), temp.served("")),
            Way::Get => (temp.served("big"), temp.local("")),
        };
        write(from, LENGTH);
        let _mount = match Mount::tmpfs(&mounted, "64m") {
            Ok(mount) => mount,
            Err(why) => return skip(Requirement::Tmpfs, format!("cannot mount a tmpfs: {why}")),
        };
        let options = Options::new();
        let progress = options.progress.clone();
        let fill = mounted.join("other");
        let filling = std::thread::spawn(move || {
            while progress.bytes() < 4 << 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::write(fill, vec![1; 40 << 20]).unwrap();
        });
        let (source, to) = match way {
            Way::Put => (temp.local("big"), PathBuf::from("copy")),
            Way::Get => (PathBuf::from("big"), temp.local("copy")),
        };
        let error = copy_as(&temp, limited(), way, &[source], &to, &options).unwrap_err().to_string();
        filling.join().unwrap();
        assert!(error.contains("could not write big: No space left on device"), "{error}");
        assert!(options.progress.bytes() < LENGTH as u64 - (8 << 20), "{}", options.progress.bytes());
        // The server sees the end a little later.
        let count = || std::fs::read_dir(&mounted).unwrap().count();
        (0..1000).take_while(|_| count() > 1).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
        assert_eq!(count(), 1, "only the other file");
    }
}

/// The unfinished file stays, and the same copy continues it.
#[test]
fn an_interrupted_transfer_continues() {
    const LENGTH: usize = 32 << 20;
    for way in [Way::Put, Way::Get] {
        let temp = Temp::new();
        write(temp.local("big"), LENGTH);
        write(temp.served("big"), LENGTH);
        let address = server(&temp.served(""), config(1));
        let options = Options::new();
        let (from, to, name) = match way {
            Way::Put => (temp.local("big"), PathBuf::from("copy"), temp.served("copy")),
            Way::Get => (PathBuf::from("big"), temp.local("copy"), temp.local("copy")),
        };
        let copy = async |session: &mut Session, options: &Options| match way {
            Way::Put => files::put(session, std::slice::from_ref(&from), &to, options).await,
            Way::Get => files::get(session, std::slice::from_ref(&from), &to, options).await,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut session = Session::connect(&address, limited()).await.unwrap();
            let began = async {
                while options.progress.bytes() < 16 << 20 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                done = copy(&mut session, &options) => panic!("32 MiB were copied before 16 MiB were: {done:?}"),
                () = began => {}
            }
            assert!(!name.exists());
        });
        drop(runtime);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let report = runtime.block_on(async {
            let mut session = Session::connect(&address, config(1)).await.unwrap();
            let report = copy(&mut session, &Options::default()).await.unwrap();
            session.close().await.unwrap();
            report
        });
        assert_eq!((report.files, report.failed_count), (1, 0), "{report:?}");
        assert!((8 << 20..LENGTH as u64).contains(&report.resumed_bytes), "{report:?}");
        assert_eq!(hash(&name), hash(&temp.local("big")));
        assert!(temp.parts().is_empty(), "{:?}", temp.parts());
    }
}
