//! The receiving half of a copy: stores what the items say, checks it first, and replies.

use super::part::{self, Part};
use super::report::{Cause, Problem, Progress, Report, Side};
use super::sink::FileSink;
use super::target::Target;
use super::wire::{BATCH_BYTES, Item, Meta, Reply, WireFailure, take_item};
use super::{names, wire};
use crate::error::{Error, Result};
use crate::payload::VecSink;
use crate::{Session, service};
use std::io::Write;
use std::sync::Arc;

/// A reply goes out for failures of this many bytes, before it gets too long for a message.
const MAX_FAILURE_BYTES: usize = BATCH_BYTES / 2;

/// One copy as its receiver sees it.
pub(super) struct Incoming<'a> {
    session: &'a mut Session,
    target: Target,
    sync: bool,
    sender: Side,
    progress: Arc<Progress>,
    report: Report,
    failures: Vec<WireFailure>,
    failure_bytes: usize,
    /// The medium file whose pieces are coming.
    medium: Option<Medium>,
}

/// A file that comes in pieces, in order.
struct Medium {
    path: Vec<u8>,
    meta: Meta,
    retry: bool,
    total_bytes: u64,
    received_bytes: u64,
    hasher: blake3::Hasher,
    part: Result<Part, Problem>,
}

/// What stands in front of a file's content.
struct Heading<'a> {
    path: &'a [u8],
    meta: Meta,
    retry: bool,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(
        session: &'a mut Session,
        target: Target,
        sync: bool,
        sender: Side,
        progress: Arc<Progress>,
    ) -> Self {
        let report = Report::default();
        Self { session, target, sync, sender, progress, report, failures: Vec::new(), failure_bytes: 0, medium: None }
    }

    /// Receives until the sender has nothing more.
    pub(super) async fn run(mut self) -> Result<Report> {
        let mut message = VecSink::new(BATCH_BYTES as u64);
        loop {
            receive_batch(self.session, &mut message).await?;
            let mut batch = &message.bytes[..];
            while !batch.is_empty() {
                if self.take(take_item(&mut batch)?, batch.is_empty()).await? {
                    return Ok(self.report);
                }
            }
        }
    }

    /// Does what `item` says; whether it was the last.
    async fn take(&mut self, item: Item<'_>, ends_batch: bool) -> Result<bool> {
        match item {
            Item::Directory { path } => match self.target.make_dir(path) {
                Ok(()) => self.report.directories += 1,
                Err(problem) => self.fail(path, true, problem).await?,
            },
            Item::DirectoryEnd { path, meta } => {
                if let Err(problem) = self.finish_dir(path, &meta) {
                    self.fail(path, true, problem).await?;
                }
            }
            Item::Small { path, meta, retry, hash, content } => {
                self.progress.expect(content.len() as u64);
                self.progress.add_bytes(content.len() as u64);
                let stored = self.store_small(path, &meta, &hash, content);
                self.settle(&Heading { path, meta, retry }, content.len() as u64, stored).await?;
            }
            Item::Large { path, meta, retry, total_bytes, ask } => {
                if !ends_batch {
                    return Err(Error::Protocol("a file's content in the middle of a batch".to_owned()));
                }
                self.large(&Heading { path, meta, retry }, total_bytes, ask).await?;
            }
            Item::Medium { path, meta, retry, total_bytes } => {
                self.progress.expect(total_bytes);
                let (path, part) = (path.to_vec(), self.create_part(path, 0));
                let hasher = blake3::Hasher::new();
                if self.medium.is_some() {
                    return Err(Error::Protocol("a file in the middle of another".to_owned()));
                }
                self.medium = Some(Medium { path, meta, retry, total_bytes, received_bytes: 0, hasher, part });
            }
            Item::Piece(bytes) => {
                if !self.medium.as_mut().is_some_and(|m| m.take(bytes)) {
                    return Err(Error::Protocol("a piece that belongs to no file".to_owned()));
                }
                self.progress.add_bytes(bytes.len() as u64);
            }
            Item::Trailer(sent) => {
                let Some(medium) = self.medium.take() else {
                    return Err(Error::Protocol("a trailer without a file".to_owned()));
                };
                let heading = Heading { path: &medium.path, meta: medium.meta, retry: medium.retry };
                let hash = *medium.hasher.finalize().as_bytes();
                if sent.is_ok() && medium.received_bytes != medium.total_bytes {
                    return Err(Error::Protocol("a file that ended early".to_owned()));
                }
                self.complete(&heading, medium.total_bytes, medium.part, Ok(hash), sent).await?;
            }
            Item::Skipped { path, what } => self.report.skip(&names::shown(path), what),
            Item::Failed { path, problem } => self.report.fail(&names::shown(path), self.sender, problem),
            Item::Ask => self.reply(Reply::default()).await?,
            Item::Finish => {
                self.reply(Reply { finished: true, ..Reply::default() }).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn finish_dir(&mut self, path: &[u8], meta: &Meta) -> Result<(), Problem> {
        let Some(dir) = self.target.dir(path)? else { return Ok(()) };
        let apply = dir.as_file().and_then(|file| part::apply(&file, meta));
        apply.map_err(|e| Problem::io(Cause::Write, &e))
    }

    fn store_small(&mut self, path: &[u8], meta: &Meta, hash: &[u8; 32], content: &[u8]) -> Result<(), Problem> {
        check_hash(blake3::hash(content).as_bytes(), hash)?;
        let (dir, name) = self.target.file(path)?;
        let part = Part::create(dir, &name).map_err(|e| Problem::io(Cause::Write, &e))?;
        let written = part.file().write_all(content).and_then(|()| part.commit(meta, self.sync));
        written.map_err(|e| Problem::io(Cause::Write, &e))
    }

    async fn large(&mut self, heading: &Heading<'_>, total_bytes: u64, ask: bool) -> Result<()> {
        self.progress.expect(total_bytes);
        let part = self.create_part(heading.path, total_bytes);
        if ask {
            let go = part.is_ok();
            if let Err(problem) = &part {
                self.settle(heading, total_bytes, Err(problem.clone())).await?;
            }
            self.reply(Reply { go, ..Reply::default() }).await?;
            if !go {
                return Ok(());
            }
        }
        let file = part.as_ref().ok().map(|p| p.file().try_clone()).transpose();
        let file = file.map_err(Error::io("duplicating a file's descriptor"))?;
        let mut sink = FileSink::new(file, total_bytes, self.progress.clone());
        let received_bytes = self.session.recv_into(&mut sink).await?;
        if received_bytes != total_bytes {
            return Err(Error::Protocol(format!("a file of {total_bytes} bytes came as {received_bytes}")));
        }
        let received = sink.finish();
        let sent = self.receive_trailer().await?;
        self.complete(heading, total_bytes, part, received, sent).await
    }

    /// Gives a file its name if what was `received` is what was `sent`.
    async fn complete(
        &mut self,
        heading: &Heading<'_>,
        total_bytes: u64,
        part: Result<Part, Problem>,
        received: Result<[u8; 32], Problem>,
        sent: Result<[u8; 32], Problem>,
    ) -> Result<()> {
        let sent = match sent {
            Ok(sent) => sent,
            // Its sender knows, and this side does not need to tell it.
            Err(problem) => {
                if !problem.cause.is_passing() || heading.retry {
                    self.report.fail(&names::shown(heading.path), self.sender, problem);
                }
                return Ok(());
            }
        };
        let stored = part.and_then(|part| {
            check_hash(&received?, &sent)?;
            part.commit(&heading.meta, self.sync).map_err(|e| Problem::io(Cause::Write, &e))
        });
        self.settle(heading, total_bytes, stored).await
    }

    fn create_part(&mut self, path: &[u8], total_bytes: u64) -> Result<Part, Problem> {
        let (dir, name) = self.target.file(path)?;
        let part = Part::create(dir, &name).map_err(|e| Problem::io(Cause::Write, &e))?;
        let reserved = if total_bytes > 0 { part.reserve(total_bytes) } else { Ok(()) };
        reserved.map_err(|e| Problem::io(Cause::Write, &e))?;
        Ok(part)
    }

    async fn receive_trailer(&mut self) -> Result<Result<[u8; 32], Problem>> {
        let mut message = VecSink::new(BATCH_BYTES as u64);
        receive_batch(self.session, &mut message).await?;
        match take_item(&mut &message.bytes[..])? {
            Item::Trailer(sent) => Ok(sent),
            _ => Err(Error::Protocol("a file without a trailer".to_owned())),
        }
    }

    /// Counts a file whose fate is known.
    async fn settle(&mut self, heading: &Heading<'_>, bytes: u64, stored: Result<(), Problem>) -> Result<()> {
        self.report.retried += u64::from(heading.retry);
        match stored {
            Ok(()) => {
                self.report.files += 1;
                self.report.bytes += bytes;
                self.progress.add_file();
                Ok(())
            }
            Err(problem) => self.fail(heading.path, heading.retry, problem).await,
        }
    }

    /// Notes a failure of this side for the sender, and for this side's report unless the sender will try again.
    async fn fail(&mut self, path: &[u8], retry: bool, problem: Problem) -> Result<()> {
        if retry || !problem.cause.is_passing() {
            let own = if self.sender == Side::Client { Side::Server } else { Side::Client };
            self.report.fail(&names::shown(path), own, problem.clone());
        }
        self.failure_bytes += path.len() + problem.reason.len() + 16;
        self.failures.push(WireFailure { path: path.to_vec(), retry, problem });
        if self.failure_bytes >= MAX_FAILURE_BYTES {
            self.reply(Reply { more: true, ..Reply::default() }).await?;
        }
        Ok(())
    }

    async fn reply(&mut self, reply: Reply) -> Result<()> {
        let Report { files, bytes, directories, .. } = self.report;
        let failures = std::mem::take(&mut self.failures);
        self.failure_bytes = 0;
        service::send(self.session, &Reply { files, bytes, directories, failures, ..reply }).await
    }
}

impl Medium {
    /// Writes the next bytes; whether the file has room for them.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.received_bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        if let Ok(part) = &self.part
            && let Err(error) = part.file().write_all(bytes)
        {
            self.part = Err(Problem::io(Cause::Write, &error));
        }
        self.received_bytes <= self.total_bytes
    }
}

async fn receive_batch(session: &mut Session, message: &mut VecSink) -> Result<()> {
    match session.recv_into(message).await {
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            Err(Error::Protocol(format!("a batch of files of {message_bytes} bytes")))
        }
        Ok(0) => Err(Error::Protocol("an empty batch of files".to_owned())),
        received => received.map(drop),
    }
}

fn check_hash(received: &[u8; 32], sent: &[u8; 32]) -> Result<(), Problem> {
    if received == sent {
        return Ok(());
    }
    let [received, sent] = [received, sent].map(|h| blake3::Hash::from_bytes(*h).to_hex());
    let reason = format!("BLAKE3 {} was sent and {} received", &sent[..16], &received[..16]);
    Err(Problem::new(Cause::Mismatch, reason))
}

const _: () = assert!(MAX_FAILURE_BYTES + 2 * (4096 + super::report::MAX_REASON_BYTES) < wire::BATCH_BYTES);
