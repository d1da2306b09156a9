//! `cp --fsync` to a disk whose power is cut, or that fails.

use super::disk::{Disk, Fault, Order};
use super::filesystem::Mounted;
use super::tree::{self, Entry, Tree, Wanted};
use multirail::files::{self, CopyError, Failure, Options, Report};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Config, Session, Token};
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;
use std::fs;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many random trees are copied.
const SEEDS: usize = 12;
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The destination, a folder of the disk.
pub const TO: &str = "to";
const ERRORS: [(i32, &str); 2] = [(libc::EIO, "Input/output error"), (libc::ENOSPC, "No space left on device")];

/// A tree to copy, and disks that get it.
pub struct Case<'a> {
    mounted: &'a Mounted,
    pub source: PathBuf,
    folder: Folder,
    pub new: Tree,
    pub old: Tree,
    order: Order,
    pub rng: Rng,
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A disk and the folder where it is mounted.
pub struct Served {
    pub disk: Arc<Disk>,
    pub root: PathBuf,
}

/// What was done, for the numbers at the end.
#[derive(Debug, Default)]
pub struct Done {
    pub copies: u64,
    pub power_cuts: u64,
    pub failed_changes: u64,
}

pub fn config() -> Config {
    Config::new().token(Token::new(b"the token of these tests")).plaintext(true).channels(NonZero::<u32>::MIN)
}

impl Case<'_> {
    pub fn new<'a>(mounted: &'a Mounted, name: &str, seed: u64) -> Case<'a> {
        let mut rng = Rng::new(seed);
        let folder = Folder(std::env::temp_dir().join(format!("multirail-disk-{name}-{}", std::process::id())));
        let tree = tree::random(&mut rng);
        tree::write(&tree, &folder.0.join("tree"));
        // With a slash at its end, the content of the tree goes into the destination.
        let (source, new) = if rng.below(2) == 0 {
            (folder.0.join("tree/"), tree)
        } else {
            let below = tree.into_iter().map(|(path, entry)| (Path::new("tree").join(path), entry));
            let top = (PathBuf::from("tree"), Entry::Directory { mode: 0o755 });
            (folder.0.join("tree"), below.chain([top]).collect())
        };
        let old = if rng.below(2) == 0 { Tree::new() } else { tree::older(&new, &mut rng) };
        let order = if rng.below(3) == 0 { Order::Journal } else { Order::Any };
        Case { mounted, source, folder, new, old, order, rng }
    }

    /// Where an entry of the tree is on this host.
    pub fn path(&self, path: &Path) -> PathBuf {
        let is_content = self.source.as_os_str().as_bytes().ends_with(b"/");
        if is_content { self.source.join(path) } else { self.folder.0.join(path) }
    }

    /// A disk that has the old files.
    pub fn served(&mut self) -> Served {
        let disk = Disk::new(self.rng.next_u64(), self.order);
        for (path, entry) in &self.old {
            if let Entry::File { content, mode, modified } = entry {
                disk.put(&Path::new(TO).join(path), content, *mode, *modified);
            }
        }
        self.mount(disk)
    }

    fn mount(&self, disk: Disk) -> Served {
        let disk = Arc::new(disk);
        Served { root: self.mounted.insert(&disk), disk }
    }

    /// Starts a server for the disk and copies.
    fn copy(&self, served: &Served, sync: bool, done: &mut Done) -> Result<Report, CopyError> {
        done.copies += 1;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (told, address) = tokio::sync::oneshot::channel();
            let server = Server::new(ListenConfig::new(([127, 0, 0, 1], 0), config()), served.root.clone());
            let serving = server.serve(|address| told.send(address).unwrap());
            let copying = async {
                let mut session = Session::connect(&address.await.unwrap().to_string(), config()).await?;
                let options = Options::new().recursive(true).sync(sync);
                let report =
                    files::put(&mut session, std::slice::from_ref(&self.source), Path::new(TO), &options).await?;
                session.close().await?;
                Ok(report)
            };
            tokio::select! {
                served = serving => panic!("the server has ended: {served:?}"),
                copied = tokio::time::timeout(TIMEOUT, copying) => copied.expect("the copy comes to an end"),
            }
        })
    }

    /// Copies, which must succeed.
    fn copy_whole(&self, served: &Served, done: &mut Done) {
        match self.copy(served, true, done) {
            Ok(report) if report.is_success() => {}
            other => panic!("{other:?}\n{}", served.trace()),
        }
    }

    pub fn compare(&self, served: &Served, wanted: Wanted) -> Result<(), String> {
        tree::check(&served.root.join(TO), &self.new, &self.old, wanted)
    }

    /// Checks what is on the disk of `served`. `before` is the disk whose changes led to it.
    pub fn check(&self, served: &Served, wanted: Wanted, before: &Served, when: &str) {
        if let Err(why) = self.compare(served, wanted) {
            panic!("{when}: {why}\n{}", before.trace());
        }
    }

    /// Cuts the power and mounts what survives.
    pub fn cut(&self, served: &Served, done: &mut Done) -> Served {
        done.power_cuts += 1;
        self.mount(served.disk.cut())
    }

    /// Copies until it is done, after a copy that was disturbed. Then the power is cut.
    fn finish(&self, served: &Served, done: &mut Done) {
        self.copy_whole(served, done);
        // The session of the disturbed copy may need a moment to end, and removes its files then. The next
        // copy makes that safe.
        let begun = Instant::now();
        let left = || names(&served.root) != [TO] || self.compare(served, Wanted::Whole).is_err();
        while left() && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.copy_whole(served, done);
        self.check(served, Wanted::Whole, served, "after the same copy was run again");
        assert_eq!(names(&served.root), [TO], "left over\n{}", served.trace());
        let after = self.cut(served, done);
        self.check(&after, Wanted::Whole, served, "after the same copy was run again, and a power cut");
    }
}

impl Served {
    pub fn trace(&self) -> String {
        self.disk.lock().trace.join("\n")
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What `--fsync` promises: a copy that has reported success is safe; at any power cut, a file has its old or
/// its new content; the same copy run again completes; a disk that fails is named.
#[test]
fn copies_with_fsync_survive_power_cuts_and_failing_disks() {
    let Some(mounted) = Mounted::new() else { return };
    let mut done = Done::default();
    for_seeds(SEEDS, |seed| {
        let mut case = Case::new(&mounted, "copy", seed);
        let changes = success_is_safe(&mut case, &mut done);
        power_is_cut(&mut case, changes, &mut done);
        disk_fails(&mut case, changes, &mut done);
        what_is_there_gets_safe(&mut case, &mut done);
        mounted.clear();
    });
    println!("{done:?}");
}

/// The power is cut when the copy has succeeded. Returns how many changes the copy made.
fn success_is_safe(case: &mut Case<'_>, done: &mut Done) -> u64 {
    let served = case.served();
    case.copy_whole(&served, done);
    let changes = served.disk.lock().asked;
    case.check(&served, Wanted::Whole, &served, "after a copy");
    let after = case.cut(&served, done);
    case.check(&after, Wanted::Whole, &served, "after a copy and a power cut");
    changes
}

/// The power is cut during the copy.
fn power_is_cut(case: &mut Case<'_>, changes: u64, done: &mut Done) {
    let served = case.served();
    served.disk.cut_at(1 + case.rng.below(changes));
    let copied = case.copy(&served, true, done);
    let succeeded = copied.is_ok_and(|report| report.is_success());
    let after = case.cut(&served, done);
    case.check(&after, if succeeded { Wanted::Whole } else { Wanted::OldOrNew }, &served, "after a power cut");
    case.finish(&after, done);
}

/// Changes fail during the copy, and then no more.
fn disk_fails(case: &mut Case<'_>, changes: u64, done: &mut Done) {
    let served = case.served();
    let (errno, text) = ERRORS[case.rng.below(2) as usize];
    let count = [1, 1, 3, u64::MAX][case.rng.below(4) as usize];
    served.disk.fail(Some(Fault { at: 1 + case.rng.below(changes), count, errno }));
    let copied = case.copy(&served, true, done);
    served.disk.fail(None);
    done.failed_changes += served.disk.lock().failed;
    case.check(&served, Wanted::OldOrNew, &served, "after a failure");
    match copied {
        Ok(report) if report.is_success() => case.check(&served, Wanted::Whole, &served, "after a harmless failure"),
        Ok(report) => {
            // What is below a directory that could not be made has no place to go to.
            let is_named = |failure: &Failure| {
                let said = failure.to_string();
                !failure.path.as_os_str().is_empty()
                    && [text, "No such file or directory"].iter().any(|t| said.contains(t))
            };
            let is_told = report.failed.iter().any(|failure| failure.reason.contains(text));
            assert!(is_told && report.failed.iter().all(is_named), "{:?}\n{}", report.failed, served.trace());
        }
        Err(error) => {
            let said = error.to_string();
            let is_named = said.contains(text) && case.new.keys().any(|path| said.contains(path.to_str().unwrap()));
            assert!(is_named, "{said}\n{}", served.trace());
        }
    }
    case.finish(&served, done);
}

/// A copy without `--fsync` was there before. Its files may be in the system's cache only.
fn what_is_there_gets_safe(case: &mut Case<'_>, done: &mut Done) {
    let served = case.served();
    let copied = case.copy(&served, false, done);
    assert!(copied.as_ref().is_ok_and(Report::is_success), "{copied:?}");
    case.finish(&served, done);
}
