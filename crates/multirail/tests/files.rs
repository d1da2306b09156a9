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
