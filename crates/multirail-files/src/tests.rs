//! Copies with a peer that breaks the protocol, or a connection that changes bytes.

mod browse;
mod changes;
mod hostile;
mod progress;
mod scope;
mod sequences;

use super::source::Tamper;
use super::wire::{Batch, Item};
use super::*;
use multirail_net::Config;
use multirail_net::session::{Accepted, ListenConfig, Listener};
use multirail_tree::dir::Dir;
use multirail_tree::meta::Meta;
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary directory that is removed when this is dropped.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("multirail-unit-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("from")).unwrap();
        std::fs::create_dir_all(path.join("to")).unwrap();
        Self(path)
    }
    fn names(&self, dir: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(dir)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs both ends of a session in one task, until the client's is done.
fn with_session<T>(
    server: impl AsyncFnOnce(&mut Session) -> Result<(), Error>,
    client: impl AsyncFnOnce(&mut Session) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = Config::default();
        let listen = ListenConfig::new(([127, 0, 0, 1], 0), session.clone());
        let mut listener = Listener::bind(listen).await.unwrap();
        let address = listener.address().to_string();
        let serving = async {
            let Accepted::Session(new) = listener.accept().await.unwrap() else { panic!("a session") };
            let mut session = new.start();
            server(&mut session).await.unwrap();
            session
        };
        let asking = async {
            let mut session = Session::connect(&address, Config::default()).await.unwrap();
            (client(&mut session).await, session)
        };
        tokio::join!(asking, serving).0.0
    })
}

/// Flips a bit of the content that is sent, the first `times` times.
fn flip(times: u32) -> Option<Tamper> {
    let left = AtomicU32::new(times);
    Some(Arc::new(move |_, bytes| {
        let again = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if let (Ok(_), Some(byte)) = (again, bytes.last_mut()) {
            *byte ^= 1;
        }
    }))
}

fn put_tampered(temp: &Temp, size: usize, times: u32) -> Report {
    std::fs::write(temp.0.join("from/file"), vec![7; size]).unwrap();
    let order = Order {
        origin: Origin::Local,
        sources: vec![Source::new(&temp.0.join("from/file"))],
        terms: Terms { recursive: false, ..Terms::default() },
        filter: None,
        on_change: None,
        side: Side::Client,
        progress: Arc::default(),
        tamper: flip(times),
    };
    let serve = async |session: &mut Session| match multirail_net::request::receive_request(session).await?.parse()? {
        FilesRequest::Put(request) => {
            serve_put(session, &Scope::Below(temp.0.join("to")), request, &Notes::default()).await
        }
        other => panic!("{other:?}"),
    };
    with_session(serve, async |session| put_order(session, &order, Path::new(""), false).await.unwrap())
}

fn get_tampered(temp: &Temp, size: usize, times: u32) -> Report {
    std::fs::write(temp.0.join("from/file"), vec![7; size]).unwrap();
    let order = Order {
        origin: Origin::Served(Dir::open(&temp.0.join("from")).unwrap()),
        sources: vec![Source::new(Path::new("file"))],
        terms: Terms { recursive: false, ..Terms::default() },
        filter: None,
        on_change: None,
        side: Side::Server,
        progress: Arc::default(),
        tamper: flip(times),
    };
    let serve = async |session: &mut Session| {
        multirail_net::request::receive_request(session).await?;
        send_all(session, &order).await.map(drop)
    };
    let to = temp.0.join("to");
    with_session(serve, async |session| get(session, &["file".into()], &to, &Options::default()).await.unwrap())
}

#[test]
fn corrupted_content_is_sent_again_once() {
    for size in [1000, 200_000, 2_000_000] {
        for copy in [put_tampered, get_tampered] {
            let temp = Temp::new();
            let report = copy(&temp, size, 1);
            assert_eq!((report.files, report.retried, report.failed_count), (1, 1, 0), "{report:?}");
            assert_eq!(std::fs::read(temp.0.join("to/file")).unwrap(), vec![7; size]);
            assert_eq!(temp.names("to"), ["file"]);
        }
    }
}

#[test]
fn a_directory_keeps_its_time_when_a_file_in_it_is_sent_again() {
    let temp = Temp::new();
    let dir = temp.0.join("from/dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), vec![7; 2_000_000]).unwrap();
    let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::open(&dir).unwrap().set_modified(past).unwrap();
    let order = Order {
        origin: Origin::Local,
        sources: vec![Source::new(&dir)],
        terms: Terms { recursive: true, ..Terms::default() },
        filter: None,
        on_change: None,
        side: Side::Client,
        progress: Arc::default(),
        tamper: flip(1),
    };
    let serve = async |session: &mut Session| match multirail_net::request::receive_request(session).await?.parse()? {
        FilesRequest::Put(request) => {
            serve_put(session, &Scope::Below(temp.0.join("to")), request, &Notes::default()).await
        }
        other => panic!("{other:?}"),
    };
    let put = async |session: &mut Session| put_order(session, &order, Path::new(""), false).await.unwrap();
    let report = with_session(serve, put);
    assert_eq!((report.files, report.retried, report.failed_count), (1, 1, 0), "{report:?}");
    assert_eq!(std::fs::metadata(temp.0.join("to/dir")).unwrap().modified().unwrap(), past);
}

#[test]
fn a_file_corrupted_twice_does_not_get_its_name() {
    for size in [1000, 200_000, 2_000_000] {
        for (copy, side) in
            [(put_tampered as fn(&Temp, usize, u32) -> Report, Side::Server), (get_tampered, Side::Client)]
        {
            let temp = Temp::new();
            let report = copy(&temp, size, u32::MAX);
            assert_eq!((report.files, report.retried, report.failed_count), (0, 1, 1), "{report:?}");
            assert_eq!((report.failed[0].cause, report.failed[0].side), (Cause::Mismatch, side));
            assert_eq!(temp.names("to"), [""; 0]);
        }
    }
}

/// A server that answers a request for `asked` with these items.
fn get_from_liar(temp: &Temp, asked: &str, recursive: bool, items: &[Item<'_>]) -> Report {
    let serve = async |session: &mut Session| {
        multirail_net::request::receive_request(session).await?;
        let mut batch = Batch::default();
        for item in items.iter().chain([&Item::Finish]) {
            assert!(batch.push(item)?);
        }
        session.send(batch.bytes()).await?;
        send::receive_reply(session.split().1).await.map(drop)
    };
    let options = Options::new().recursive(recursive);
    let to = temp.0.join("to");
    with_session(serve, async |session| get(session, &[asked.into()], &to, &options).await.unwrap())
}

#[test]
fn a_server_cannot_write_unrequested_files() {
    let meta = Meta { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
    let small = |path: &'static str| {
        let (hash, path) = (*blake3::hash(b"x").as_bytes(), path.as_bytes());
        Item::Small { path, meta, retry: false, hash, content: b"x" }
    };
    for (asked, recursive, path) in [
        ("a", false, ".bashrc"),
        ("a", false, "a/b"),
        ("a", true, "b/a"),
        ("a", true, "../a"),
        ("a", true, "a/../../a"),
        ("a", true, "/tmp/a"),
        ("a", true, "a//b"),
        ("a", true, "."),
        ("a", true, "./a"),
        ("a/b", false, "a"),
        (".", false, "x"),
    ] {
        let temp = Temp::new();
        std::fs::create_dir(temp.0.join("to/a")).unwrap();
        let report = get_from_liar(&temp, asked, recursive, &[small(path)]);
        assert_eq!((report.files, report.failed_count), (0, 1), "{path} {report:?}");
        assert_eq!(report.failed[0].cause, Cause::Refused, "{path} {report:?}");
        assert_eq!((temp.names("to"), temp.names("to/a")), (vec!["a".to_owned()], vec![]), "{path}");
        assert_eq!(temp.names(""), ["from", "to"]);
    }
    let temp = Temp::new();
    let report = get_from_liar(&temp, "a", false, &[Item::Directory { path: b"a" }]);
    assert_eq!((report.failed_count, temp.names("to").len()), (1, 0), "no directory without -r");
    assert_eq!(get_from_liar(&temp, "x/a", false, &[small("a")]).files, 1);
}

/// The content of a file that is longer than announced ends the session at once.
#[test]
fn a_file_of_another_length_than_announced_ends_the_session() {
    let meta = Meta { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
    for (announced_bytes, sent) in [(10u64, &[20usize][..]), (10, &[100_000]), (0, &[1]), (100_000, &[20, 99_981])] {
        let temp = Temp::new();
        let serve = async |session: &mut Session| {
            multirail_net::request::receive_request(session).await?;
            let mut batch = Batch::default();
            let total_bytes = announced_bytes;
            let item =
                Item::Large { path: b"a", meta, retry: false, total_bytes, changed: (0, 0), data: None, ask: false };
            assert!(batch.push(&item)?);
            session.send(batch.bytes()).await?;
            for sent_bytes in sent {
                // The client never takes a long message, and keeps the session open.
                let content = vec![7; *sent_bytes];
                let _ = tokio::time::timeout(std::time::Duration::from_secs(1), session.send(&content)).await;
            }
            Ok(())
        };
        let to = temp.0.join("to");
        let got = with_session(serve, async |session| {
            let (asked, options) = (["a".into()], Options::new());
            let got = get(session, &asked, &to, &options);
            tokio::time::timeout(std::time::Duration::from_secs(5), got).await.expect("an answer at once")
        });
        assert!(matches!(got, Err(CopyError::Session(Error::Protocol(_)))), "{announced_bytes} {got:?}");
        assert_eq!(temp.names("to"), [""; 0]);
    }
}

#[test]
fn invalid_batches_end_the_session() {
    let encode = |items: &[Item<'_>]| {
        let mut batch = Batch::default();
        assert!(items.iter().all(|item| batch.push(item).unwrap()));
        batch.bytes().to_vec()
    };
    let meta = Meta { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
    let medium = || Item::Medium { path: b"a", meta, retry: false, total_bytes: 3 };
    let large = Item::Large { path: b"a", meta, retry: false, total_bytes: 3, changed: (0, 0), data: None, ask: false };
    for bytes in [
        b"\xff".to_vec(),
        b"\x02\x05abc".to_vec(),
        Vec::new(),
        encode(&[Item::Piece(b"x")]),
        encode(&[Item::Trailer(Ok([0; 32]))]),
        encode(&[medium(), Item::Piece(b"four")]),
        encode(&[medium(), Item::Piece(b"of"), Item::Trailer(Ok([0; 32]))]),
        encode(&[medium(), medium()]),
        encode(&[large, Item::Ask]),
    ] {
        let temp = Temp::new();
        let serve = async |session: &mut Session| {
            multirail_net::request::receive_request(session).await?;
            session.send(&bytes).await
        };
        let to = temp.0.join("to");
        let got = with_session(serve, async |session| get(session, &["a".into()], &to, &Options::default()).await);
        assert!(matches!(got, Err(CopyError::Session(Error::Protocol(_)))), "{bytes:?} {got:?}");
        assert_eq!(temp.names("to"), [""; 0]);
    }
}
