//! Files over loopback: trees go both ways, what fails is named, and nothing leads out of the served folder.

use multirail::files::{self, Cause, CopyError, Options, PART_SUFFIX, Report, Side};
use multirail::service::{ServeConfig, serve};
use multirail::session::ListenConfig;
use multirail::{Config, Session};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A directory that goes with its owner.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("multirail-files-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("local")).unwrap();
        std::fs::create_dir_all(path.join("served")).unwrap();
        std::fs::create_dir_all(path.join("outside")).unwrap();
        Self(path)
    }
    fn local(&self, path: &str) -> PathBuf {
        self.0.join("local").join(path)
    }
    fn served(&self, path: &str) -> PathBuf {
        self.0.join("served").join(path)
    }
    fn outside(&self, path: &str) -> PathBuf {
        self.0.join("outside").join(path)
    }
    /// Files that transfers left behind.
    fn parts(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut rest = vec![self.0.clone()];
        while let Some(dir) = rest.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    rest.push(entry.path());
                } else if entry.file_name().to_string_lossy().ends_with(PART_SUFFIX) {
                    found.push(entry.path());
                }
            }
        }
        found
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves `root` on a thread for as long as the process lives; returns the address.
fn server(root: &Path, session: Config) -> String {
    let (told, address) = std::sync::mpsc::channel();
    let listen = ListenConfig { address: "127.0.0.1:0".parse().unwrap(), insecure_no_token: false, session };
    let config = ServeConfig { listen, root: root.to_owned() };
    std::thread::spawn(move || {
        let serving = serve(config, |address| told.send(address.to_string()).unwrap());
        multirail::service::block_on(serving)
    });
    address.recv().unwrap()
}

fn config(channels_per_rail: u32) -> Config {
    Config { channels_per_rail, give_up_after: Duration::from_secs(2), ..Config::default() }
}

enum Way {
    Put,
    Get,
}

fn copy_with(
    temp: &Temp,
    channels: u32,
    way: Way,
    sources: &[PathBuf],
    to: &Path,
    options: &Options,
) -> Result<Report, CopyError> {
    let address = server(&temp.served(""), config(channels));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut session = Session::connect(&address, config(channels)).await?;
        let copied = match way {
            Way::Put => files::put(&mut session, sources, to, options).await,
            Way::Get => files::get(&mut session, sources, to, options).await,
        };
        if copied.is_ok() {
            session.close().await?;
        }
        copied
    })
}

fn recursive() -> Options {
    Options { recursive: true, ..Options::default() }
}

fn put(temp: &Temp, sources: &[&str], to: &str) -> Result<Report, CopyError> {
    let sources: Vec<PathBuf> = sources.iter().map(|s| temp.local(s)).collect();
    copy_with(temp, 1, Way::Put, &sources, Path::new(to), &recursive())
}

fn get(temp: &Temp, sources: &[&str], to: &str) -> Result<Report, CopyError> {
    let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
    copy_with(temp, 1, Way::Get, &sources, &temp.local(to), &recursive())
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i * 31 + i / 251 + i / 65_537) as u8).collect()
}

fn write(path: PathBuf, bytes: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, pattern(bytes)).unwrap();
}

/// Everything about a tree that a copy keeps.
fn describe(root: &Path) -> Vec<(PathBuf, u32, std::time::SystemTime, Option<blake3::Hash>)> {
    let mut found = Vec::new();
    let mut rest = vec![root.to_owned()];
    while let Some(path) = rest.pop() {
        let stat = std::fs::metadata(&path).unwrap();
        let hash = stat.is_file().then(|| blake3::hash(&std::fs::read(&path).unwrap()));
        if stat.is_dir() {
            rest.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let mode = stat.permissions().mode() & 0o777;
        found.push((path.strip_prefix(root).unwrap().to_owned(), mode, stat.modified().unwrap(), hash));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

const SIZES: [usize; 12] =
    [0, 1, 4096, 57_343, 57_344, 57_345, 65_535, 65_536, 65_537, 131_072, (1 << 20) + 3, 20 << 20];

fn tree(temp: &Temp, root: PathBuf) {
    for size in SIZES {
        write(root.join(format!("sub/deep {size}/file-{size}")), size);
    }
    write(root.join("top"), 5000);
    std::fs::create_dir(root.join("empty")).unwrap();
    let set = |path: PathBuf, mode, seconds| {
        let file = std::fs::File::open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::new(seconds, 123_456_789)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(root.join("top"), 0o640, 1_000_000_000);
    set(root.join("empty"), 0o711, 1_100_000_000);
    set(root.join("sub/deep 1/file-1"), 0o755, 1_200_000_000);
    set(root.join("sub"), 0o750, 1_300_000_000);
    assert!(temp.parts().is_empty());
}

#[test]
fn a_tree_goes_there_and_back() {
    for channels in [1, 3] {
        let temp = Temp::new();
        tree(&temp, temp.local("tree"));
        let copy = |way, from: PathBuf, to: &Path| copy_with(&temp, channels, way, &[from], to, &recursive()).unwrap();
        let there = copy(Way::Put, temp.local("tree"), Path::new("copy"));
        assert_eq!((there.files, there.failed_count), (SIZES.len() as u64 + 1, 0), "{there:?}");
        assert_eq!(there.bytes, SIZES.iter().sum::<usize>() as u64 + 5000);
        assert_eq!(describe(&temp.local("tree")), describe(&temp.served("copy")));
        let back = copy(Way::Get, PathBuf::from("copy"), &temp.local("back"));
        assert_eq!((back.files, back.bytes, back.failed_count), (there.files, there.bytes, 0));
        assert_eq!(describe(&temp.local("tree")), describe(&temp.local("back")));
        assert!(temp.parts().is_empty());
    }
}

fn hash(path: &Path) -> blake3::Hash {
    blake3::hash(&std::fs::read(path).unwrap())
}

fn refused(result: Result<Report, CopyError>, why: &str) {
    match result {
        Err(CopyError::Refused(text) | CopyError::Destination(text) | CopyError::Sources(text)) => {
            assert!(text.contains(why), "{text}");
        }
        other => panic!("{why}: {other:?}"),
    }
}

/// The one failure of a copy.
fn only_failure(report: &Report, side: Side, cause: Cause, text: &str) {
    assert_eq!(report.failed_count, 1, "{report:?}");
    let failure = &report.failed[0];
    assert_eq!((failure.side, failure.cause), (side, cause), "{failure}");
    assert!(failure.to_string().contains(text), "{failure}");
}

#[test]
fn every_strategy_brings_a_file_whole() {
    for strategy in multirail::Strategy::ALL {
        let temp = Temp::new();
        write(temp.local("file"), (3 << 20) + 5);
        let address = server(&temp.served(""), config(3));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let [up, down] = runtime.block_on(async {
            let config = Config { strategy, ..config(3) };
            let mut session = Session::connect(&address, config).await.unwrap();
            let options = Options { server_strategy: Some((strategy, 2048)), ..Options::default() };
            let up = files::put(&mut session, &[temp.local("file")], Path::new("file"), &options).await.unwrap();
            let down = files::get(&mut session, &["file".into()], &temp.local("back"), &options).await.unwrap();
            session.close().await.unwrap();
            [up, down]
        });
        assert!(up.is_success() && down.is_success(), "{strategy} {up:?} {down:?}");
        assert_eq!(hash(&temp.local("file")), hash(&temp.local("back")), "{strategy}");
        assert_eq!(hash(&temp.local("file")), hash(&temp.served("file")), "{strategy}");
    }
}

#[test]
fn destinations_are_as_with_cp() {
    let temp = Temp::new();
    write(temp.local("a"), 10);
    write(temp.local("b"), 20);
    write(temp.local("dir/c"), 30);
    write(temp.served("file"), 1);
    std::fs::create_dir(temp.served("into")).unwrap();

    assert!(put(&temp, &["a"], "into").unwrap().is_success());
    assert!(put(&temp, &["dir"], "into/").unwrap().is_success());
    assert!(put(&temp, &["a", "b"], "").unwrap().is_success());
    assert!(put(&temp, &["a"], "file").unwrap().is_success());
    assert!(put(&temp, &["dir"], "new").unwrap().is_success());
    assert!(put(&temp, &["dir/."], "content").unwrap().is_success());
    assert!(put(&temp, &["dir/."], "into").unwrap().is_success());
    for (path, bytes) in [
        ("into/a", 10),
        ("into/dir/c", 30),
        ("a", 10),
        ("b", 20),
        ("file", 10),
        ("new/c", 30),
        ("content/c", 30),
        ("into/c", 30),
    ] {
        assert_eq!(std::fs::metadata(temp.served(path)).unwrap().len(), bytes, "{path}");
    }
    refused(put(&temp, &["a", "b"], "nowhere"), "no directory nowhere");
    refused(put(&temp, &["a", "b"], "file"), "file is a file, not a directory");
    refused(put(&temp, &["a"], "file/"), "not a directory");
    refused(put(&temp, &["a"], "nowhere/a"), "no directory to put nowhere/a in");
    refused(put(&temp, &["a", "dir/../a"], ""), "two sources are called a");
    let slash = put(&temp, &["a"], "absent/").unwrap();
    only_failure(&slash, Side::Server, Cause::Refused, "written as a directory");

    assert!(get(&temp, &["into/a", "new"], "").unwrap().is_success());
    assert!(get(&temp, &["."], "all").unwrap().is_success());
    assert!(get(&temp, &["new/."], "content").unwrap().is_success());
    assert_eq!(std::fs::read(temp.local("new/c")).unwrap(), pattern(30));
    assert_eq!(std::fs::read(temp.local("all/into/dir/c")).unwrap(), pattern(30));
    assert_eq!(std::fs::read(temp.local("content/c")).unwrap(), pattern(30));
    refused(get(&temp, &["a", "b"], "nowhere"), "no directory");
}

#[test]
fn a_directory_needs_to_be_asked_for() {
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
    assert!(report.failed_count >= 1 && report.failed.iter().all(|f| f.cause == Cause::Refused), "{report:?}");
    assert_eq!(std::fs::read_dir(temp.outside("")).unwrap().count(), 1);

    // In a tree they are skipped, and named.
    let report = get(&temp, &["."], "all").unwrap();
    assert_eq!((report.skipped_count, report.failed_count), (4, 0), "{report:?}");
    assert!(report.skipped.iter().all(|s| s.what == "a symlink"));
    assert!(!temp.local("all/link").exists());
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
fn what_fails_is_named_and_the_rest_goes_through() {
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

/// Root reads everything; `/proc/self/mem` answers its reads with an error even to root.
#[test]
fn an_unreadable_file_is_named() {
    let temp = Temp::new();
    write(temp.local("good"), 10);
    write(temp.local("locked"), 10);
    std::fs::set_permissions(temp.local("locked"), std::fs::Permissions::from_mode(0o000)).unwrap();
    // SAFETY: asks for this process's user.
    let root = unsafe { libc::geteuid() } == 0;
    let unreadable = if root { PathBuf::from("/proc/self/mem") } else { temp.local("locked") };
    let name = unreadable.file_name().unwrap().to_str().unwrap().to_owned();
    let sources = [unreadable, temp.local("good")];
    let report = copy_with(&temp, 1, Way::Put, &sources, Path::new(""), &Options::default()).unwrap();
    only_failure(&report, Side::Client, Cause::Read, &format!("this host could not read {name}: "));
    assert!(temp.served("good").exists() && !temp.served(&name).exists());
}

/// The kernel's own count of a small file system says when it is full.
#[test]
fn a_full_disk_is_named_and_the_rest_goes_through() {
    let temp = Temp::new();
    let _mount = match Mount::tmpfs(&temp.served("")) {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: cannot mount a small tmpfs: {why}"),
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
    fn tmpfs(at: &Path) -> Result<Self, String> {
        let run = |command: &mut std::process::Command| match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        };
        run(std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(at))?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn an_interrupted_transfer_leaves_nothing() {
    for way in [Way::Put, Way::Get] {
        let temp = Temp::new();
        let file = std::fs::File::create(temp.local("big")).unwrap();
        file.set_len(4 << 30).unwrap();
        std::fs::rename(temp.local("big"), temp.served("big")).unwrap();
        std::fs::File::create(temp.local("big")).unwrap().set_len(4 << 30).unwrap();
        let address = server(&temp.served(""), config(1));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = Options::default();
        runtime.block_on(async {
            let mut session = Session::connect(&address, config(1)).await.unwrap();
            let began = async {
                while options.progress.bytes() < 64 << 20 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let (from, to, name) = match way {
                Way::Put => (temp.local("big"), PathBuf::from("copy"), temp.served("copy")),
                Way::Get => (PathBuf::from("big"), temp.local("copy"), temp.local("copy")),
            };
            let copy = async {
                match way {
                    Way::Put => files::put(&mut session, &[from], &to, &options).await,
                    Way::Get => files::get(&mut session, &[from], &to, &options).await,
                }
            };
            tokio::select! {
                done = copy => panic!("4 GiB were copied before 64 MiB were: {done:?}"),
                () = began => {}
            }
            assert!(!name.exists());
        });
        drop(runtime);
        // The server gives up two seconds after the client went.
        for _ in 0..1000 {
            if temp.parts().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(temp.parts().is_empty(), "{:?}", temp.parts());
        assert!(!temp.served("copy").exists() && !temp.local("copy").exists());
    }
}

#[test]
fn many_small_files_and_deep_trees() {
    let temp = Temp::new();
    for n in 0..3000 {
        write(temp.local(&format!("tree/{}/{n}", n % 7)), n % 5000);
    }
    write(temp.local(&format!("tree/{}file", "d/".repeat(100))), 10);
    let report = put(&temp, &["tree"], "copy").unwrap();
    assert_eq!((report.files, report.failed_count), (3001, 0));
    assert_eq!(describe(&temp.local("tree")), describe(&temp.served("copy")));
    let report = get(&temp, &["copy"], "back").unwrap();
    assert_eq!((report.files, report.failed_count), (3001, 0));
    assert_eq!(describe(&temp.local("tree")), describe(&temp.local("back")));
}
