//! The content of files, in items or in messages of its own.

use super::incoming::{Incoming, receive_batch, wire_failure};
use super::state::{Heading, Medium};
use super::takeover;
use crate::blocks::BlockHashes;
use crate::pieces::Pieces;
use crate::sink::FileSink;
use crate::wire::{BATCH_BYTES, Item, Reply, take_item};
use multirail_net::error::{Error, Result};
use multirail_net::payload::VecSink;
use multirail_net::quota::{Quota, Reservation};
use multirail_tree::extra::Extra;
use multirail_tree::journal::{Identity, Journal};
use multirail_tree::meta::Meta;
use multirail_tree::part::{self, Part};
use multirail_tree::report::{Cause, Problem};
use multirail_tree::space::check_room;
use std::io::Write;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the sender may take to hear that the receiver gives up.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);
/// How often a receiver that keeps nothing more looks whether the sender has ended the session.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A large file that may be received.
struct Large {
    part: Part,
    /// With a journal, an earlier copy may have brought some of it.
    journal: Option<Journal>,
}

impl Incoming<'_> {
    pub(super) fn store_small(
        &mut self,
        path: &[u8],
        meta: &Meta,
        hash: &[u8; 32],
        content: &[u8],
        extra: Option<Extra>,
    ) -> Result<(), Problem> {
        check_hash(blake3::hash(content).as_bytes(), hash)?;
        let reserved = self.reserve(Quota::cost(content.len() as u64))?;
        let (dir, name) = self.target.file(path, self.order.sync)?;
        let part = Part::create(dir, &name).map_err(|e| Problem::io(Cause::Write, &e))?;
        part.file().write_all(content).map_err(|e| Problem::io(Cause::Write, &e))?;
        self.commit(part, meta, extra.as_ref())?;
        reserved.keep();
        Ok(())
    }

    /// Gives a file whose content is verified its properties and its name.
    fn commit(&self, part: Part, meta: &Meta, extra: Option<&Extra>) -> Result<(), Problem> {
        let extras = self.order.terms.extras;
        let applied = extra.map_or(Ok(()), |extra| extras.apply(extra, part.file()));
        applied.and_then(|()| part.commit(meta, self.order.sync)).map_err(|e| Problem::io(Cause::Write, &e))
    }

    pub(super) fn begin_medium(&mut self, heading: &Heading<'_>, total_bytes: u64) -> Result<()> {
        if self.medium.is_some() {
            return Err(Error::Protocol("a file within another".to_owned()));
        }
        let (part, reserved) = match self.reserve(Quota::cost(total_bytes)) {
            Ok(reserved) => (self.create_part(heading.path, total_bytes), reserved),
            Err(problem) => (Err(problem), Reservation::default()),
        };
        self.medium = Some(Medium {
            path: heading.path.to_vec(),
            meta: heading.meta,
            retry: heading.retry,
            extra: heading.extra.clone(),
            total_bytes,
            received_bytes: 0,
            hasher: blake3::Hasher::new(),
            part,
            reserved,
        });
        Ok(())
    }

    pub(super) async fn end_medium(&mut self, sent: Result<[u8; 32], Problem>) -> Result<()> {
        let Some(medium) = self.medium.take() else {
            return Err(Error::Protocol("a trailer without a file".to_owned()));
        };
        if sent.is_ok() && medium.received_bytes != medium.total_bytes {
            return Err(Error::Protocol("a file that ended early".to_owned()));
        }
        let Medium { path, meta, retry, extra, total_bytes, hasher, part, reserved, .. } = medium;
        let hash = *hasher.finalize().as_bytes();
        let part = part.map(|part| (part, reserved));
        self.complete(&Heading { path: &path, meta, retry, extra }, total_bytes, part, Ok(hash), sent).await
    }

    pub(super) async fn large(
        &mut self,
        heading: &Heading<'_>,
        total_bytes: u64,
        changed: (i64, u32),
        data: Option<Vec<(u64, u64)>>,
        ask: bool,
    ) -> Result<()> {
        let data = match data {
            Some(data) => Pieces::parse(&data, total_bytes)?,
            None => Pieces::whole(total_bytes),
        };
        let identity = ask.then(|| identity(&heading.meta, changed, total_bytes, &data)).flatten();
        let reserved = self.reserve(Quota::cost(data.bytes()));
        let opened = match &reserved {
            Ok(_) => self.open_large(heading.path, &data, total_bytes, identity.as_ref()).await,
            Err(problem) => Err(problem.clone()),
        };
        let mut reserved = reserved.unwrap_or_default();
        let (part, journal) = match opened {
            Ok(large) => (Ok(large.part), large.journal),
            Err(problem) => (Err(problem), None),
        };
        let file = part.as_ref().ok().map(|p| p.file().try_clone()).transpose();
        let file = file.map_err(Error::io("duplicating a file's descriptor"))?;
        let mut sink = FileSink::new(file, data, self.order.progress.clone());
        let held = part.as_ref().ok().and_then(|part| takeover::hold(part.file(), self.session.watch()));
        let part = match journal {
            Some(journal) => {
                // Verifying what is there takes as long as reading it.
                let resumable = part.as_ref().map(|part| part.stays().clone()).unwrap_or_default();
                let resumed = tokio::task::spawn_blocking(move || {
                    let resumed = sink.resume(journal, resumable);
                    (sink, resumed)
                });
                let resumed = resumed.await.map_err(|e| Error::io("verifying a part")(std::io::Error::other(e)))?;
                sink = resumed.0;
                resumed.1.map_err(|e| Problem::io(Cause::Write, &e)).and(part)
            }
            None => part,
        };
        let had_bytes = total_bytes - sink.wanted().bytes();
        // What an earlier copy has left was counted then.
        reserved.shrink(Quota::cost(sink.wanted().bytes()));
        if ask {
            let go = part.is_ok();
            if let Err(problem) = &part {
                self.settle(heading, total_bytes, Err(problem.clone())).await?;
            }
            self.reply(Reply { go, wanted: sink.wanted().to_wire(), ..Reply::default() }).await?;
            if !go {
                return Ok(());
            }
            self.counts.resumed_bytes += had_bytes;
        }
        self.order.progress.resume(had_bytes);
        let stop = held.as_ref().map(|held| held.stop.clone());
        let received = tokio::select! {
            received = self.receive_content(heading, &mut sink) => received,
            () = async { match &stop { Some(stop) => stop.notified().await, None => std::future::pending().await } } => {
                Err(Error::Closed)
            }
        };
        // Another copy can continue when the connections are lost, and only then. A full disk gets its
        // room back.
        let stays = matches!(&received, Err(error) if !matches!(error, Error::Protocol(_) | Error::Local(_)));
        if let (Ok(part), false) = (&part, stays) {
            part.stays().store(false, Ordering::Relaxed);
        }
        if stays && part.as_ref().is_ok_and(|part| part.stays().load(Ordering::Relaxed)) {
            reserved.shrink(Quota::cost(sink.stored_bytes()));
            std::mem::take(&mut reserved).keep();
        }
        let sent = received?;
        let hash = sink.finish();
        drop(held);
        self.complete(heading, total_bytes, part.map(|part| (part, reserved)), hash, sent).await
    }

    /// Receives the content of a large file, and its trailer.
    async fn receive_content(
        &mut self,
        heading: &Heading<'_>,
        sink: &mut FileSink,
    ) -> Result<Result<[u8; 32], Problem>> {
        while !sink.is_complete() {
            let trouble = sink.trouble.clone();
            let (sender, receiver) = self.session.split();
            let stopped = {
                let mut receiving = pin!(receiver.recv_into(sink));
                tokio::select! {
                    received = &mut receiving => {
                        received?;
                        None
                    }
                    problem = trouble.wait() => {
                        // The sender ends the session when it is told. Until then, the rest is
                        // thrown away.
                        let stopped = Some(wire_failure(heading.path, true, problem.clone()));
                        let reply = Reply { more: true, stopped, ..Reply::default() }.encode()?;
                        let told = async { tokio::join!(sender.send(&reply), receiving) };
                        let _ = tokio::time::timeout(GIVES_UP_AFTER, told).await;
                        Some(problem)
                    }
                }
            };
            if let Some(problem) = stopped {
                // Were this side the first to close, the sender could lose the reply.
                let _ = tokio::time::timeout(GIVES_UP_AFTER, self.sender_ended()).await;
                return Err(self.stopped_by(heading.path, &problem));
            }
            sink.end_message();
        }
        self.receive_trailer().await
    }

    /// Waits for the sender to end the session. What it sends until then is not kept.
    async fn sender_ended(&mut self) {
        let mut rest = VecSink::new(BATCH_BYTES as u64);
        loop {
            match self.session.recv_into(&mut rest).await {
                Ok(_) => {}
                Err(Error::MessageTooLarge { .. }) => tokio::time::sleep(LOOK_EVERY).await,
                Err(_) => return,
            }
        }
    }

    /// Opens the part of a file of `total_bytes`, if there is room for the rest of it.
    async fn open_large(
        &mut self,
        path: &[u8],
        data: &Pieces,
        total_bytes: u64,
        identity: Option<&Identity>,
    ) -> Result<Large, Problem> {
        let (dir, name) = self.target.file(path, self.order.sync)?;
        let io = |e: std::io::Error| Problem::io(Cause::Write, &e);
        let Some(identity) = identity else {
            let part = self.create_part(path, data.bytes())?;
            // Also where a hole is at the end.
            part.file().set_len(total_bytes).map_err(io)?;
            return Ok(Large { part, journal: None });
        };
        takeover::wait(&dir, &name, identity).await;
        let there_bytes = part::taken_bytes(&dir, &name);
        dir.as_file().and_then(|dir| check_room(&dir, data.bytes().saturating_sub(there_bytes))).map_err(io)?;
        let (part, journal) = Part::resume(dir, &name, identity).map_err(io)?;
        Ok(Large { part, journal: Some(journal) })
    }

    /// Gives a file its name if the hash of what was `received` equals the hash of what was `sent`.
    async fn complete(
        &mut self,
        heading: &Heading<'_>,
        total_bytes: u64,
        part: Result<(Part, Reservation), Problem>,
        received: Result<[u8; 32], Problem>,
        sent: Result<[u8; 32], Problem>,
    ) -> Result<()> {
        let sent = match sent {
            Ok(sent) => sent,
            // The sender knows of this failure.
            Err(problem) => {
                if !problem.cause.is_passing() || heading.retry {
                    self.report.fail(&multirail_tree::names::shown(heading.path), self.order.sender, problem);
                }
                return Ok(());
            }
        };
        let stored = part.and_then(|(part, reserved)| {
            check_hash(&received?, &sent)?;
            self.commit(part, &heading.meta, heading.extra.as_ref())?;
            reserved.keep();
            Ok(())
        });
        self.settle(heading, total_bytes, stored).await
    }

    /// Creates the part of a file of `total_bytes`, if there is room for it.
    fn create_part(&mut self, path: &[u8], total_bytes: u64) -> Result<Part, Problem> {
        let (dir, name) = self.target.file(path, self.order.sync)?;
        let part = Part::create(dir, &name).map_err(|e| Problem::io(Cause::Write, &e))?;
        check_room(part.file(), total_bytes).map_err(|e| Problem::io(Cause::Write, &e))?;
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
}

/// What tells a source from a changed one; `None` for a file of one block, which has no journal.
fn identity(meta: &Meta, changed: (i64, u32), total_bytes: u64, data: &Pieces) -> Option<Identity> {
    let hashes = BlockHashes::new(data.bytes());
    let mut hasher = blake3::Hasher::new();
    let numbers = [total_bytes, meta.mtime_s as u64, u64::from(meta.mtime_ns), changed.0 as u64, u64::from(changed.1)];
    let ranges = data.to_wire().into_iter().flat_map(|(start, length)| [start, length]);
    for number in numbers.into_iter().chain([hashes.block_bytes()]).chain(ranges) {
        hasher.update(&number.to_le_bytes());
    }
    let fingerprint = *hasher.finalize().as_bytes();
    (hashes.count() > 1).then_some(Identity { total_bytes, blocks: hashes.count(), fingerprint })
}

pub(super) fn check_hash(received: &[u8; 32], sent: &[u8; 32]) -> Result<(), Problem> {
    if received == sent {
        return Ok(());
    }
    let [received, sent] = [received, sent].map(|h| blake3::Hash::from_bytes(*h).to_hex());
    let reason = format!("BLAKE3 {} was sent and {} received", &sent[..16], &received[..16]);
    Err(Problem::new(Cause::Mismatch, reason))
}
