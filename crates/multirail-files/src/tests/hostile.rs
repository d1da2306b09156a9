//! Peers that announce more than they send.

use super::*;
use multirail_tree::report::{MAX_REASON_BYTES, MAX_SHOWN_BYTES, Problem};
use multirail_tree::space::Space;
use std::os::unix::fs::MetadataExt;

/// The disk space that the entries of `dir` take, in bytes.
fn taken_bytes(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// What is announced and never sent: far more than a part takes, and less than any disk has free on
/// which the tests can run.
const ANNOUNCED_BYTES: u64 = 16 << 20;

#[test]
fn an_announced_file_takes_no_room_before_it_arrives() {
    let temp = Temp::new();
    let to = temp.0.join("to");
    let meta = Meta { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
    let serve = async |session: &mut Session| {
        multirail_net::request::receive_request(session).await?;
        let mut batch = Batch::default();
        assert!(batch.push(&Item::Large {
            path: b"a",
            meta,
            retry: false,
            total_bytes: ANNOUNCED_BYTES,
            changed: (0, 0),
            data: None,
            ask: true
        })?);
        session.send(batch.bytes()).await?;
        let space = Space::of(&std::fs::File::open(&temp.0).unwrap());
        assert!(send::receive_reply(session.split().1).await?.go, "refused, with {space:?}");
        assert_eq!(temp.names("to").len(), 1, "the part");
        let taken_bytes = taken_bytes(&to);
        assert!(taken_bytes <= 64 << 10, "{taken_bytes} bytes");
        // A message without content ends the copy.
        session.send(b"").await
    };
    let got = with_session(serve, async |session| get(session, &["a".into()], &to, &Options::default()).await);
    assert!(matches!(got, Err(CopyError::Session(Error::Protocol(_)))), "{got:?}");
    assert_eq!(temp.names("to"), [""; 0]);
}

/// No disk has 4 EiB.
#[test]
fn a_file_without_room_is_refused_before_it_is_sent() {
    let temp = Temp::new();
    let to = temp.0.join("to");
    let meta = Meta { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
    let serve = async |session: &mut Session| {
        multirail_net::request::receive_request(session).await?;
        let mut batch = Batch::default();
        assert!(batch.push(&Item::Large {
            path: b"a",
            meta,
            retry: false,
            total_bytes: 1 << 62,
            changed: (0, 0),
            data: None,
            ask: true
        })?);
        session.send(batch.bytes()).await?;
        assert!(!send::receive_reply(session.split().1).await?.go);
        batch.clear();
        assert!(batch.push(&Item::Finish)?);
        session.send(batch.bytes()).await?;
        send::receive_reply(session.split().1).await.map(drop)
    };
    let options = Options::default();
    let report = with_session(serve, async |session| get(session, &["a".into()], &to, &options).await.unwrap());
    assert_eq!((report.files, report.failed_count), (0, 1));
    assert_eq!(report.failed[0].to_string(), "this host could not write a: No space left on device");
    assert_eq!(temp.names("to"), [""; 0]);
}

/// A peer's names and texts are as long as it likes.
#[test]
fn a_report_of_many_long_paths_stays_short() {
    const ITEMS: usize = 300;
    let temp = Temp::new();
    let to = temp.0.join("to");
    let (path, what) = (vec![b'x'; 30_000], "y".repeat(30_000));
    let meta = Meta { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
    let items = |batch: &mut Batch, item: usize| {
        let (hash, content, path) = ([0; 32], b"z", &path[..]);
        match item % 3 {
            0 => batch.push(&Item::Skipped { path, what: &what }),
            1 => batch.push(&Item::Failed { path, problem: Problem { cause: Cause::Read, reason: what.clone() } }),
            _ => batch.push(&Item::Small { path, meta, retry: true, hash, content }),
        }
    };
    let serve = async |session: &mut Session| {
        multirail_net::request::receive_request(session).await?;
        let mut batch = Batch::default();
        for item in 0..ITEMS {
            assert!(items(&mut batch, item)?);
            session.send(batch.bytes()).await?;
            batch.clear();
        }
        assert!(batch.push(&Item::Finish)?);
        session.send(batch.bytes()).await?;
        let (mut failures, mut reply) = (0, send::receive_reply(session.split().1).await?);
        loop {
            assert!(reply.failures.iter().all(|failure| failure.path.len() <= names::MAX_PATH_BYTES));
            failures += reply.failures.len();
            if reply.finished {
                break;
            }
            reply = send::receive_reply(session.split().1).await?;
        }
        assert_eq!(failures, ITEMS / 3);
        Ok(())
    };
    let options = Options::default();
    let report = with_session(serve, async |session| get(session, &["a".into()], &to, &options).await.unwrap());
    assert_eq!((report.skipped_count as usize, report.failed_count as usize), (ITEMS / 3, 2 * ITEMS / 3));
    let failed = report.failed.iter().map(|f| f.path.as_os_str().len() + f.reason.len());
    let skipped = report.skipped.iter().map(|s| s.path.as_os_str().len() + s.what.len());
    assert!(failed.chain(skipped).all(|bytes| bytes <= MAX_SHOWN_BYTES + MAX_REASON_BYTES));
}
