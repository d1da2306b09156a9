//! The sending half of a copy: walks the sources as a stream, sends what it finds, and tries once more what went wrong on the way.

use super::names;
use super::origin::{Opened, Origin, Source};
use super::report::{Cause, Problem, Progress, Report, Side, read_problem};
use super::source::FileSource;
use super::walk::{Found, Walk, meta_of};
use super::wire::{BATCH_BYTES, Batch, Item, MAX_MEDIUM_BYTES, MAX_SMALL_BYTES, Meta, Reply};
use crate::Session;
use crate::error::{Error, Result};
use crate::payload::VecSink;
use crate::session::{Receiver, Sender};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What runs of a large file are cut at multiples of.
const GRAIN_BYTES: u64 = 64 << 10;
/// For a file of this length the receiver is asked first: the round trip costs less than sending it for nothing.
const ASK_FIRST_BYTES: u64 = 8 << 20;
/// The receiver is asked how it goes after so many files or bytes of small ones ...
const ASK_FILES: u32 = 512;
const ASK_BYTES: u64 = 512 << 10;
/// ... and may leave so many questions open: it is not further behind than that.
const MAX_OPEN_ASKS: u64 = 8;
/// Files to be tried again; beyond it they have failed.
const MAX_RETRIES: usize = 1024;

/// What to send and for whom.
pub(super) struct Order {
    pub origin: Origin,
    pub sources: Vec<Source>,
    pub recursive: bool,
    /// This side.
    pub side: Side,
    pub progress: Arc<Progress>,
    #[cfg(test)]
    pub tamper: Option<super::source::Tamper>,
}

/// Sends all of it; returns when the receiver has stored what can be stored.
pub(super) async fn send_all(session: &mut Session, order: &Order) -> Result<Report> {
    let tally = Mutex::new(Tally::default());
    let (answers, answered) = watch::channel(Answers::default());
    let (sender, receiver) = session.split();
    let mut outgoing = Outgoing {
        order,
        tally: &tally,
        sender,
        answered,
        asked: 0,
        unasked_files: 0,
        unasked_bytes: 0,
        batch: Batch::default(),
        content: Vec::new(),
    };
    // Replies are read all the time: neither side ever waits for the other to read.
    futures_util::future::try_join(outgoing.run(), read_replies(receiver, order.side, &tally, answers)).await?;
    Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner).report)
}

/// What came of the files so far; both futures write to it.
#[derive(Debug, Default)]
struct Tally {
    report: Report,
    /// Wire paths of files to be sent again.
    again: Vec<Vec<u8>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Answers {
    count: u64,
    /// The last one was a go.
    go: bool,
}

async fn read_replies(
    receiver: &mut Receiver,
    side: Side,
    tally: &Mutex<Tally>,
    answers: watch::Sender<Answers>,
) -> Result<()> {
    let other = if side == Side::Client { Side::Server } else { Side::Client };
    loop {
        let reply = receive_reply(receiver).await?;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        let Tally { report, again } = &mut *tally;
        (report.files, report.bytes, report.directories) = (reply.files, reply.bytes, reply.directories);
        for failure in reply.failures {
            if failure.problem.cause.is_passing() && !failure.retry && again.len() < MAX_RETRIES {
                again.push(failure.path);
            } else {
                report.fail(&names::shown(&failure.path), other, failure.problem);
            }
        }
        drop(tally);
        if reply.finished {
            return Ok(());
        }
        if !reply.more {
            answers.send_modify(|a| *a = Answers { count: a.count + 1, go: reply.go });
        }
    }
}

pub(super) async fn receive_reply(receiver: &mut Receiver) -> Result<Reply> {
    let mut message = VecSink::new(BATCH_BYTES as u64);
    match receiver.recv_into(&mut message).await {
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            return Err(Error::Protocol(format!("a reply of {message_bytes} bytes")));
        }
        received => received?,
    };
    match postcard::take_from_bytes(&message.bytes) {
        Ok((reply, [])) => Ok(reply),
        _ => Err(Error::Protocol("a reply that does not parse".to_owned())),
    }
}

struct Outgoing<'a> {
    order: &'a Order,
    tally: &'a Mutex<Tally>,
    sender: &'a mut Sender,
    answered: watch::Receiver<Answers>,
    asked: u64,
    unasked_files: u32,
    unasked_bytes: u64,
    batch: Batch,
    /// A small file's content.
    content: Vec<u8>,
}

impl Outgoing<'_> {
    async fn run(&mut self) -> Result<()> {
        for source in &self.order.sources {
            let top = names::bytes(Path::new(&source.top));
            match self.order.origin.open(&source.path) {
                Ok(Opened::File(file)) => self.file(top, Ok(file), false).await?,
                Ok(Opened::Special) => self.skip(top, "a special file").await?,
                Ok(Opened::Dir(_)) if !self.order.recursive => {
                    self.fail(top, false, Problem::new(Cause::Read, "it is a directory; copy those with -r")).await?;
                }
                Ok(Opened::Dir(dir)) => self.tree(Walk::new(dir, top)).await?,
                Err(problem) => self.fail(top, false, problem).await?,
            }
        }
        self.ask().await?;
        self.wait_for(self.asked).await?;
        let again = std::mem::take(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner).again);
        for path in again {
            self.tally.lock().unwrap_or_else(PoisonError::into_inner).report.retried += 1;
            self.file_again(&path).await?;
        }
        self.push(&Item::Finish).await?;
        self.flush().await
    }

    async fn tree(&mut self, mut walk: Walk) -> Result<()> {
        while let Some(found) = walk.next() {
            let path = walk.path();
            match found {
                Found::Directory => self.push(&Item::Directory { path }).await?,
                Found::DirectoryEnd(meta) => self.push(&Item::DirectoryEnd { path, meta }).await?,
                Found::File(file) => self.file(path, file, false).await?,
                Found::Other(what) => self.skip(path, what).await?,
                Found::Failed(problem) => self.fail(path, false, problem).await?,
            }
        }
        Ok(())
    }

    /// Sends a file whose first try went wrong on the way.
    async fn file_again(&mut self, path: &[u8]) -> Result<()> {
        let Ok(wire) = names::WirePath::parse(path) else { return Ok(()) };
        let Some(source) = self.order.sources.iter().find(|s| s.wire_top() == wire.top) else { return Ok(()) };
        match self.order.origin.open(&source.path) {
            Ok(Opened::File(file)) if wire.below.as_os_str().is_empty() => self.file(path, Ok(file), true).await,
            Ok(Opened::Dir(top)) => {
                self.file(path, top.open_file(&wire.below), true).await?;
                // Its directory has got a new time by that.
                let dir = wire.below.parent().and_then(|below| top.open_dir(below).ok());
                let Some(Ok(meta)) = dir.map(|dir| meta_of(&dir)) else { return Ok(()) };
                let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
                self.push(&Item::DirectoryEnd { path: &path[..end], meta }).await
            }
            Ok(_) => self.fail(path, true, Problem::new(Cause::Changed, "it is no file any more")).await,
            Err(problem) => self.fail(path, true, problem).await,
        }
    }

    async fn file(&mut self, path: &[u8], file: std::io::Result<File>, retry: bool) -> Result<()> {
        let (file, stat) = match file.and_then(|f| f.metadata().map(|m| (f, m))) {
            Ok(opened) => opened,
            Err(error) => return self.fail(path, retry, Problem::io(Cause::Read, &error)).await,
        };
        if !stat.is_file() {
            return self.skip(path, "a special file").await;
        }
        let meta = Meta { mode: stat.mode() & 0o777, mtime_s: stat.mtime(), mtime_ns: stat.mtime_nsec() as u32 };
        self.order.progress.expect(stat.len());
        if stat.len() <= MAX_SMALL_BYTES {
            self.small(path, &file, stat.len(), meta, retry).await?;
        } else if stat.len() <= MAX_MEDIUM_BYTES {
            self.medium(path, &file, &stat, meta, retry).await?;
        } else {
            self.large(path, &file, &stat, meta, retry).await?;
        }
        self.order.progress.add_file();
        Ok(())
    }

    async fn small(&mut self, path: &[u8], file: &File, size: u64, meta: Meta, retry: bool) -> Result<()> {
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        // One byte more shows whether it grew.
        let problem = match file.take(size + 1).read_to_end(&mut content) {
            Ok(n) if n as u64 == size => None,
            Ok(_) => Some(Problem::new(Cause::Changed, "its length changed while it was read")),
            Err(error) => Some(Problem::io(Cause::Read, &error)),
        };
        match problem {
            None => {
                let hash = *blake3::hash(&content).as_bytes();
                #[cfg(test)]
                if let Some(tamper) = &self.order.tamper {
                    tamper(0, &mut content);
                }
                self.push(&Item::Small { path, meta, retry, hash, content: &content }).await?;
                self.content = content;
                self.sent_in_batches(1, size).await
            }
            Some(problem) => self.fail(path, retry, problem).await,
        }
    }

    async fn medium(&mut self, path: &[u8], file: &File, stat: &Metadata, meta: Meta, retry: bool) -> Result<()> {
        self.push(&Item::Medium { path, meta, retry, total_bytes: stat.len() }).await?;
        let mut content = std::mem::take(&mut self.content);
        let mut hasher = blake3::Hasher::new();
        let mut left = stat.len();
        let mut sent = Ok(());
        while left > 0 && sent.is_ok() {
            content.resize(left.min(MAX_SMALL_BYTES) as usize, 0);
            sent = (&*file).read_exact(&mut content).map_err(|e| read_problem(&e));
            if sent.is_ok() {
                left -= content.len() as u64;
                hasher.update(&content);
                #[cfg(test)]
                if let Some(tamper) = &self.order.tamper {
                    tamper(0, &mut content);
                }
                self.push(&Item::Piece(&content)).await?;
                self.sent_in_batches(0, content.len() as u64).await?;
            }
        }
        self.content = content;
        let sent = sent.and_then(|()| unchanged(file, stat)).map(|()| *hasher.finalize().as_bytes());
        self.trailer(path, retry, sent).await?;
        self.sent_in_batches(1, 0).await
    }

    async fn large(&mut self, path: &[u8], file: &File, stat: &Metadata, meta: Meta, retry: bool) -> Result<()> {
        // SAFETY: the descriptor is open; no memory is involved. It is advice only.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_SEQUENTIAL) };
        let total_bytes = stat.len();
        let ask = total_bytes >= ASK_FIRST_BYTES;
        self.push(&Item::Large { path, meta, retry, total_bytes, ask }).await?;
        self.flush().await?;
        if ask {
            self.asked += 1;
            self.wait_for(self.asked).await?;
            if !self.answered.borrow().go {
                return Ok(());
            }
        }
        let mut source = FileSource::new(file, total_bytes, self.order.progress.clone());
        #[cfg(test)]
        source.tamper.clone_from(&self.order.tamper);
        self.sender.send_from(&mut source, GRAIN_BYTES).await?;
        let sent = source.finish().and_then(|hash| unchanged(file, stat).map(|()| hash));
        self.trailer(path, retry, sent).await?;
        // By itself: the receiver takes it before anything else.
        self.flush().await
    }

    async fn trailer(&mut self, path: &[u8], retry: bool, sent: Result<[u8; 32], Problem>) -> Result<()> {
        if let Err(problem) = &sent {
            self.note(path, retry, problem);
        }
        self.push(&Item::Trailer(sent)).await
    }

    /// Counts what went into batches, and asks how it goes when it is much.
    async fn sent_in_batches(&mut self, files: u32, bytes: u64) -> Result<()> {
        self.order.progress.add_bytes(bytes);
        self.unasked_files += files;
        self.unasked_bytes += bytes;
        let due = self.unasked_files >= ASK_FILES || self.unasked_bytes >= ASK_BYTES;
        if due { self.ask().await } else { Ok(()) }
    }

    async fn skip(&mut self, path: &[u8], what: &str) -> Result<()> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).report.skip(&names::shown(path), what);
        self.push(&Item::Skipped { path, what }).await
    }

    /// Something of this side's went wrong before anything was sent.
    async fn fail(&mut self, path: &[u8], retry: bool, problem: Problem) -> Result<()> {
        if self.note(path, retry, &problem) {
            self.push(&Item::Failed { path, problem }).await?;
        }
        Ok(())
    }

    /// Notes a problem of this side's; whether it is the file's end.
    fn note(&mut self, path: &[u8], retry: bool, problem: &Problem) -> bool {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        if problem.cause.is_passing() && !retry && tally.again.len() < MAX_RETRIES {
            tally.again.push(path.to_vec());
            return false;
        }
        tally.report.fail(&names::shown(path), self.order.side, problem.clone());
        true
    }

    async fn push(&mut self, item: &Item<'_>) -> Result<()> {
        if !self.batch.push(item)? {
            self.flush().await?;
            self.batch.push(item)?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.sender.send(self.batch.bytes()).await?;
            self.batch.clear();
        }
        Ok(())
    }

    /// Asks the receiver how it goes, and waits if too many such questions are open.
    async fn ask(&mut self) -> Result<()> {
        self.push(&Item::Ask).await?;
        self.flush().await?;
        self.asked += 1;
        (self.unasked_files, self.unasked_bytes) = (0, 0);
        self.wait_for(self.asked.saturating_sub(MAX_OPEN_ASKS)).await
    }

    async fn wait_for(&mut self, count: u64) -> Result<()> {
        self.answered.wait_for(|a| a.count >= count).await.map(drop).map_err(|_| Error::Closed)
    }
}

/// What was read is one file, not two versions of it.
fn unchanged(file: &File, before: &Metadata) -> Result<(), Problem> {
    match file.metadata() {
        Ok(now) if now.len() == before.len() && now.modified().ok() == before.modified().ok() => Ok(()),
        Ok(_) => Err(Problem::new(Cause::Changed, "it was written to while it was read")),
        Err(error) => Err(Problem::io(Cause::Read, &error)),
    }
}
