//! A served and a local directory, and copies between them.

use multirail::files::{self, Cause, CopyError, Options, PART_SUFFIX, Report, Side};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Config, Session};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A directory that is removed when this is dropped.
pub struct Temp(PathBuf);

impl Temp {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("multirail-files-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("local")).unwrap();
        std::fs::create_dir_all(path.join("served")).unwrap();
        std::fs::create_dir_all(path.join("outside")).unwrap();
        Self(path)
    }
    pub fn local(&self, path: &str) -> PathBuf {
        self.0.join("local").join(path)
    }
    pub fn served(&self, path: &str) -> PathBuf {
        self.0.join("served").join(path)
    }
    pub fn outside(&self, path: &str) -> PathBuf {
        self.0.join("outside").join(path)
    }
    /// Files that transfers left behind.
    pub fn parts(&self) -> Vec<PathBuf> {
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
pub fn server(root: &Path, session: Config) -> String {
    let (told, address) = std::sync::mpsc::channel();
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), session);
    let server = Server::new(listen, root.to_owned());
    std::thread::spawn(move || {
        let serving = server.serve(|address| told.send(address.to_string()).unwrap());
        multirail::runtime::block_on(serving)
    });
    address.recv().unwrap()
}

pub fn config(channels_per_rail: u32) -> Config {
    Config::new().channels(NonZero::new(channels_per_rail).unwrap()).give_up_after(Duration::from_secs(2))
}

pub enum Way {
    Put,
    Get,
}

pub fn copy_with(
    temp: &Temp,
    channels: u32,
    way: Way,
    sources: &[PathBuf],
    to: &Path,
    options: &Options,
) -> Result<Report, CopyError> {
    copy_as(temp, config(channels), way, sources, to, options)
}

/// As [`copy_with`], with this configuration of the client.
pub fn copy_as(
    temp: &Temp,
    client: Config,
    way: Way,
    sources: &[PathBuf],
    to: &Path,
    options: &Options,
) -> Result<Report, CopyError> {
    let address = server(&temp.served(""), config(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut session = Session::connect(&address, client).await?;
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

pub fn recursive() -> Options {
    Options::new().recursive(true)
}

pub fn put(temp: &Temp, sources: &[&str], to: &str) -> Result<Report, CopyError> {
    let sources: Vec<PathBuf> = sources.iter().map(|s| temp.local(s)).collect();
    copy_with(temp, 1, Way::Put, &sources, Path::new(to), &recursive())
}

pub fn get(temp: &Temp, sources: &[&str], to: &str) -> Result<Report, CopyError> {
    let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
    copy_with(temp, 1, Way::Get, &sources, &temp.local(to), &recursive())
}

pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i * 31 + i / 251 + i / 65_537) as u8).collect()
}

pub fn write(path: PathBuf, bytes: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, pattern(bytes)).unwrap();
}

pub fn hash(path: &Path) -> blake3::Hash {
    blake3::hash(&std::fs::read(path).unwrap())
}

/// The properties of a tree that a copy preserves.
/// Path, mode, modification time and content of an entry.
pub type Described = (PathBuf, u32, std::time::SystemTime, Option<blake3::Hash>);

pub fn describe(root: &Path) -> Vec<Described> {
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

pub fn refused(result: Result<Report, CopyError>, why: &str) {
    match result {
        Err(CopyError::Refused(text) | CopyError::Destination(text) | CopyError::Sources(text)) => {
            assert!(text.contains(why), "{text}");
        }
        other => panic!("{why}: {other:?}"),
    }
}

/// The one failure of a copy.
pub fn only_failure(report: &Report, side: Side, cause: Cause, text: &str) {
    assert_eq!(report.failed_count, 1, "{report:?}");
    let failure = &report.failed[0];
    assert_eq!((failure.side, failure.cause), (side, cause), "{failure}");
    assert!(failure.to_string().contains(text), "{failure}");
}
