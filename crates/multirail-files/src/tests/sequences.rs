//! Random sequences of items from a hostile sender: valid ones, and ones that break a rule.

use super::*;
use crate::wire::What;
use multirail_net::payload::VecSink;
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;
use multirail_tree::extra::Extra;
use multirail_tree::report::Problem;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// The receiver must come to an end within this time, whatever it receives.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Paths below the directory that was asked for.
const VALID_PATHS: &[&str] = &["a/b", "a/c", "a/d", "a/e", "a/f", "a/d/g"];
const LINKED: &str = "a/b";
/// Other paths, most of them outside the destination.
const HOSTILE_PATHS: &[&str] = &["a", "b", "../x", "a/../../x", "/tmp/x", "a//b", "", ".", "a/.", "a/b/"];

/// A message of the sender.
enum Step {
    Batch(Vec<u8>),
    Content(Vec<u8>),
}

/// The sequence of one seed, and every content that it announced with the right hash, by path.
struct Sequence {
    steps: Vec<Step>,
    honest: HashMap<String, HashSet<Vec<u8>>>,
    /// Paths that were announced as hard links to [`LINKED`].
    linked: HashSet<String>,
    /// A content is shorter than announced, so that the receiver waits for the rest of it.
    is_short: bool,
}

fn content(rng: &mut Rng, most_bytes: u64) -> Vec<u8> {
    let (length, byte) = (rng.below(most_bytes + 1) as usize, rng.below(256) as u8);
    vec![byte; length]
}

/// The hash of `content`, or now and then another one.
fn hash(rng: &mut Rng, content: &[u8]) -> ([u8; 32], bool) {
    let is_right = rng.below(8) > 0;
    (if is_right { *blake3::hash(content).as_bytes() } else { [1; 32] }, is_right)
}

/// The length of `content`, or now and then another one.
fn length(rng: &mut Rng, content: &[u8]) -> u64 {
    match rng.below(30) {
        0 => 0,
        1 => content.len() as u64 + 1,
        2 => 1 << rng.below(64),
        _ => content.len() as u64,
    }
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let mut this = Self { steps: Vec::new(), honest: HashMap::new(), linked: HashSet::new(), is_short: false };
        let mut batch = Batch::default();
        // Most copies begin with the directory that was asked for.
        if rng.below(4) > 0 {
            assert!(batch.push(&Item::Directory { path: b"a" }).unwrap());
        }
        for _ in 0..rng.below(12) {
            this.add(rng, &mut batch);
            if rng.below(3) == 0 {
                this.end_batch(&mut batch);
            }
        }
        assert!(batch.push(&Item::Finish).unwrap());
        this.end_batch(&mut batch);
        this
    }

    fn end_batch(&mut self, batch: &mut Batch) {
        let bytes = std::mem::take(batch).bytes().to_vec();
        self.steps.push(Step::Batch(bytes));
    }

    fn add(&mut self, rng: &mut Rng, batch: &mut Batch) {
        let paths = if rng.below(6) > 0 { VALID_PATHS } else { HOSTILE_PATHS };
        let path = paths[rng.below(paths.len() as u64) as usize];
        let meta =
            Meta { mode: rng.below(1 << 16) as u32, mtime_s: rng.next_u64() as i64, mtime_ns: rng.next_u64() as u32 };
        let (wire_path, retry) = (path.as_bytes(), rng.below(2) == 0);
        let mut push = |item: &Item<'_>| assert!(batch.push(item).unwrap());
        match rng.below(12) {
            0 => push(&Item::Directory { path: wire_path }),
            1 => push(&Item::DirectoryEnd { path: wire_path, meta }),
            2..5 => {
                let content = content(rng, 3000);
                let (hash, is_right) = hash(rng, &content);
                push(&Item::Small { path: wire_path, meta, retry, hash, content: &content });
                self.note(path, &content, is_right);
            }
            5..7 => {
                let content = content(rng, 8000);
                push(&Item::Medium { path: wire_path, meta, retry, total_bytes: length(rng, &content) });
                content.chunks(3000).for_each(|piece| push(&Item::Piece(piece)));
                let (hash, is_right) = hash(rng, &content);
                push(&Item::Trailer(Ok(hash)));
                self.note(path, &content, is_right);
            }
            7..9 => {
                let content = content(rng, 200_000);
                let total_bytes = length(rng, &content);
                self.is_short |= total_bytes > content.len() as u64;
                let ask = rng.below(2) == 0;
                push(&Item::Large { path: wire_path, meta, retry, total_bytes, changed: (0, 0), data: None, ask });
                self.end_batch(batch);
                let (hash, is_right) = hash(rng, &content);
                self.note(path, &content, is_right);
                self.steps.push(Step::Content(content));
                assert!(batch.push(&Item::Trailer(Ok(hash))).unwrap());
                self.end_batch(batch);
            }
            9 if rng.below(2) == 0 => {
                let content = content(rng, 30);
                let what = match rng.below(3) {
                    0 => What::Symlink(&content),
                    _ => What::File(length(rng, &content)),
                };
                let shared = rng.below(4) / 3;
                let extra = (rng.below(2) == 0).then_some([0; 16]);
                push(&Item::Entry { shared, rest: wire_path, meta, what, extra });
                self.note(path, b"", true);
            }
            9 => push(&Item::Skipped { path: wire_path, what: "a \u{1b}[2Jsocket" }),
            10 => push(&Item::Failed { path: wire_path, problem: Problem::new(Cause::Read, "gone") }),
            _ => push(&match rng.below(20) {
                0 => Item::Piece(b"x"),
                1 => Item::Trailer(Ok([0; 32])),
                2 => {
                    self.linked.insert(path.to_owned());
                    Item::HardLink { path: wire_path, to: LINKED.as_bytes() }
                }
                3 => Item::Same { path: wire_path, meta },
                4 => Item::Keep { path: wire_path },
                5 => Item::KeepNames(b"/x"),
                6 => Item::KeepEnd,
                7 => Item::Extra(Extra { owner: Some((1, 1)), attributes: vec![(b"user.x".to_vec(), vec![1])] }),
                8 => Item::FoundAll,
                _ => Item::Ask,
            }),
        }
    }

    fn note(&mut self, path: &str, content: &[u8], is_right: bool) {
        if is_right {
            self.honest.entry(path.to_owned()).or_default().insert(content.to_vec());
        }
    }
}

/// All regular files below `folder`, by their path in it.
fn files(folder: &Path, prefix: &str, found: &mut HashMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_symlink() {
            continue;
        }
        let path = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            // A hostile sender may have taken its owner's rights away.
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            files(&entry.path(), &format!("{path}/"), found);
        } else {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
            found.insert(path, std::fs::read(entry.path()).unwrap());
        }
    }
}

/// Whatever the items are, the receiver comes to an end, keeps inside the destination, leaves no part
/// behind, and a file has only a content that was announced with its hash.
#[test]
fn any_sequence_of_items_is_stored_whole_or_refused() {
    for_seeds(150, |seed| {
        let sequence = Sequence::new(seed);
        let temp = Temp::new();
        let (ended, sent) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let serve = async |session: &mut Session| {
            multirail_net::request::receive_request(session).await?;
            let (sender, receiver) = session.split();
            let send_all = async {
                for step in &sequence.steps {
                    let (Step::Batch(bytes) | Step::Content(bytes)) = step;
                    if sender.send(bytes).await.is_err() {
                        break;
                    }
                }
                sent.notify_one();
            };
            // One that does not read its replies holds up its own copy, and nothing else. The content of a refused file
            // may read as thousands of items that ask for one.
            let read_replies = async { while receiver.recv_into(&mut VecSink::new(1 << 20)).await.is_ok() {} };
            // A receiver that has given the session up keeps it open and takes nothing more.
            tokio::select! {
                _ = async { tokio::join!(send_all, read_replies) } => {}
                () = ended.notified() => {}
            }
            Ok(())
        };
        let to = temp.0.join("to");
        let got = with_session(serve, async |session| {
            let (asked, options) = (["a".into()], Options::new().recursive(true));
            let waits = async {
                sent.notified().await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            };
            let got = tokio::select! {
                got = tokio::time::timeout(TIME_LIMIT, get(session, &asked, &to, &options)) => Some(got),
                () = waits, if sequence.is_short => None,
            };
            ended.notify_one();
            got
        });
        let mut found = HashMap::new();
        files(&to, "", &mut found);
        // What could be continued stays when the sender does not go on.
        found.retain(|path, _| got.is_some() || !path.ends_with(PART_SUFFIX));
        for (path, content) in &found {
            let is_of = |path: &str| sequence.honest.get(path).is_some_and(|all| all.contains(content));
            // A hard link has the content of the other name.
            let is_honest = is_of(path) || (sequence.linked.contains(path) && is_of(LINKED));
            assert!(is_honest, "{path}: {} bytes that no hash was for", content.len());
        }
        assert_eq!(temp.names(""), ["from", "to"], "something outside the destination");
        match got {
            None => {}
            Some(Ok(Ok(report))) => {
                // A hard link is a name of its own.
                let named = report.files + report.links;
                assert!(named >= found.len() as u64, "{report:?} {:?}", found.keys());
            }
            Some(Ok(Err(CopyError::Session(Error::Protocol(_))))) => {}
            // The sender waits for a receiver that has refused a file: nothing else may hold a copy up.
            Some(Err(_)) => panic!("the receiver does not come to an end"),
            Some(Ok(Err(error))) => panic!("{error:?}"),
        }
    });
}
