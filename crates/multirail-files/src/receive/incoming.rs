//! The items of a copy, one after the other.

use super::state::{Heading, Keeping, Medium};
use crate::options::{OnChange, Terms};
use crate::wire::{self, Answer, BATCH_BYTES, Change, Counts, Item, Reply, WireFailure, take_item};
use multirail_net::error::{Error, Result};
use multirail_net::payload::VecSink;
use multirail_net::permissions::Permissions;
use multirail_net::quota::Reservation;
use multirail_net::{Session, request};
use multirail_tree::extra::Extra;
use multirail_tree::filter::Filter;
use multirail_tree::meta::Meta;
use multirail_tree::names;
use multirail_tree::part;
use multirail_tree::report::{Cause, Failure, Problem, Progress, Report, Side};
use multirail_tree::target::Target;
use std::sync::Arc;

/// Failures, answers and changes of this many bytes are sent at once, before a reply gets too long for
/// a message.
const MAX_REPORTED_BYTES: usize = BATCH_BYTES / 2;

/// How a copy is received.
pub(crate) struct Order {
    pub terms: Terms,
    pub filter: Option<Arc<Filter>>,
    pub sync: bool,
    pub sender: Side,
    pub progress: Arc<Progress>,
    /// Is told what would be done. Otherwise the sender is.
    pub on_change: Option<OnChange>,
    /// What the sender may do here.
    pub permissions: Permissions,
}

/// A copy that is being received.
pub(crate) struct Incoming<'a> {
    pub(super) session: &'a mut Session,
    pub(super) target: Target,
    pub(super) order: Order,
    pub(super) report: Report,
    pub(super) counts: Counts,
    pub(super) failures: Vec<WireFailure>,
    pub(super) answers: Vec<Answer>,
    pub(super) changes: Vec<(Change, Vec<u8>)>,
    /// What failures, answers and changes take in a reply.
    pub(super) reported_bytes: usize,
    /// The medium file that is being received.
    pub(super) medium: Option<Medium>,
    /// The path of the last announcement.
    pub(super) announced: Vec<u8>,
    /// What belongs to the entry of the next item.
    pub(super) extra: Option<Extra>,
    /// The list of names that is being received.
    pub(super) keeping: Option<Keeping>,
}

impl<'a> Incoming<'a> {
    pub(crate) fn new(session: &'a mut Session, target: Target, order: Order) -> Self {
        Self {
            session,
            target: target.strict(),
            order,
            report: Report::default(),
            counts: Counts::default(),
            failures: Vec::new(),
            answers: Vec::new(),
            changes: Vec::new(),
            reported_bytes: 0,
            medium: None,
            announced: Vec::new(),
            extra: None,
            keeping: None,
        }
    }

    /// Receives until the end of the copy.
    pub(crate) async fn run(mut self) -> Result<Report> {
        if !self.order.terms.dry_run {
            self.target.clean_base();
        }
        let mut message = VecSink::new(BATCH_BYTES as u64);
        loop {
            receive_batch(self.session, &mut message).await?;
            let mut batch = &message.bytes[..];
            while !batch.is_empty() {
                if self.take(take_item(&mut batch)?, batch.is_empty()).await? {
                    self.counts.report(&mut self.report);
                    return Ok(self.report);
                }
            }
            if !self.answers.is_empty() {
                self.reply(Reply { more: true, ..Reply::default() }).await?;
            }
        }
    }

    /// Handles `item` and returns whether it was the last.
    pub(super) async fn take(&mut self, item: Item<'_>, ends_batch: bool) -> Result<bool> {
        if self.order.terms.dry_run && item.writes() {
            return Err(Error::Protocol("content for a copy that copies nothing".to_owned()));
        }
        let extra = self.extra.take();
        match item {
            Item::Directory { path } => self.directory(path).await?,
            Item::DirectoryEnd { path, meta } => {
                if self.order.terms.dry_run {
                } else if let Err(problem) = self.finish_dir(path, &meta, extra) {
                    self.fail(path, true, problem).await?;
                }
            }
            Item::Entry { shared, rest, meta, what, extra } => self.entry(shared, rest, meta, what, extra).await?,
            Item::Extra(extra) => self.extra = Some(extra),
            Item::Same { path, meta } => self.same(path, &meta, extra).await?,
            Item::HardLink { path, to } => self.hard_link(path, to).await?,
            Item::Keep { path } => self.begin_keeping(path)?,
            Item::KeepNames(names) => self.keep(names)?,
            Item::KeepEnd => self.end_keeping().await?,
            Item::FoundAll => self.order.progress.find_all(),
            Item::Small { path, meta, retry, hash, content } => {
                self.order.progress.add_bytes(content.len() as u64);
                let stored = self.store_small(path, &meta, &hash, content, extra);
                let heading = Heading { path, meta, retry, extra: None };
                self.settle(&heading, content.len() as u64, stored).await?;
            }
            Item::Large { path, meta, retry, total_bytes, changed, data, ask } => {
                if !ends_batch {
                    return Err(Error::Protocol("a file's content within a batch".to_owned()));
                }
                let heading = Heading { path, meta, retry, extra };
                self.large(&heading, total_bytes, changed, data, ask).await?;
            }
            Item::Medium { path, meta, retry, total_bytes } => {
                self.begin_medium(&Heading { path, meta, retry, extra }, total_bytes)?;
            }
            Item::Piece(bytes) => {
                if !self.medium.as_mut().is_some_and(|m| m.take(bytes)) {
                    return Err(Error::Protocol("a piece without a file".to_owned()));
                }
                self.order.progress.add_bytes(bytes.len() as u64);
            }
            Item::Trailer(sent) => self.end_medium(sent).await?,
            Item::Skipped { path, what } => self.report.skip(&names::shown(path), what),
            Item::Failed { path, problem } => {
                self.report.fail(&names::shown(path), self.order.sender, problem);
            }
            Item::Ask => self.reply(Reply::default()).await?,
            Item::Finish => {
                if let Some((note, base)) = self.target.end_note() {
                    // Reading a folder takes as long as it is large.
                    let finished = tokio::task::spawn_blocking(move || note.finish(&base)).await;
                    finished.map_err(|e| Error::io("ending the note of a copy")(std::io::Error::other(e)))?;
                }
                self.reply(Reply { finished: true, ..Reply::default() }).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn finish_dir(&mut self, path: &[u8], meta: &Meta, extra: Option<Extra>) -> Result<(), Problem> {
        let Some(dir) = self.target.dir(path)? else { return Ok(()) };
        let extras = self.order.terms.extras;
        let applied = dir.as_file().and_then(|file| {
            extra.map_or(Ok(()), |extra| extras.apply(&extra, &file))?;
            part::apply(&file, meta)?;
            if self.order.sync { file.sync_all() } else { Ok(()) }
        });
        applied.map_err(|e| Problem::io(Cause::Write, &e))
    }

    /// Reserves room for `bytes` in the quota of the sender.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation, Problem> {
        self.order.permissions.reserve(bytes).map_err(|why| Problem::new(Cause::Refused, why))
    }

    /// Counts a finished file.
    pub(super) async fn settle(
        &mut self,
        heading: &Heading<'_>,
        bytes: u64,
        stored: Result<(), Problem>,
    ) -> Result<()> {
        self.report.retried += u64::from(heading.retry);
        match stored {
            Ok(()) => {
                self.counts.files += 1;
                self.counts.bytes += bytes;
                self.order.progress.add_files(1);
                Ok(())
            }
            Err(problem) => self.fail(heading.path, heading.retry, problem).await,
        }
    }

    /// Counts an entry that the destination had.
    pub(super) fn keep_entry(&mut self) {
        self.counts.unchanged += 1;
        self.order.progress.add_unchanged(1);
    }

    /// Notes a failure of this side for the sender. It goes into this side's report unless the
    /// sender sends the file again.
    pub(super) async fn fail(&mut self, path: &[u8], retry: bool, problem: Problem) -> Result<()> {
        if retry || !problem.cause.is_passing() {
            self.report.fail(&names::shown(path), self.own_side(), problem.clone());
        }
        let failure = wire_failure(path, retry, problem);
        self.reported_bytes += failure.path.len() + failure.problem.reason.len() + 16;
        self.failures.push(failure);
        self.reply_if_long().await
    }

    /// Tells what would be done with the entry `path`.
    pub(super) async fn would(&mut self, change: Change, path: &[u8]) -> Result<()> {
        if let Some(on_change) = &self.order.on_change {
            on_change(change, &names::shown(path));
            return Ok(());
        }
        let path = &path[..path.len().min(names::MAX_PATH_BYTES)];
        self.reported_bytes += path.len() + 16;
        self.changes.push((change, path.to_vec()));
        self.reply_if_long().await
    }

    pub(super) async fn answer(&mut self, answer: Answer) -> Result<()> {
        self.reported_bytes += size_of::<Answer>();
        self.answers.push(answer);
        self.reply_if_long().await
    }

    pub(super) async fn reply_if_long(&mut self) -> Result<()> {
        if self.reported_bytes >= MAX_REPORTED_BYTES {
            self.reply(Reply { more: true, ..Reply::default() }).await?;
        }
        Ok(())
    }

    pub(super) async fn reply(&mut self, reply: Reply) -> Result<()> {
        let reply = self.fill(reply);
        request::send(self.session, &reply).await
    }

    /// Puts what was not reported yet into `reply`.
    pub(super) fn fill(&mut self, reply: Reply) -> Reply {
        self.reported_bytes = 0;
        Reply {
            counts: self.counts,
            failures: std::mem::take(&mut self.failures),
            answers: std::mem::take(&mut self.answers),
            changes: std::mem::take(&mut self.changes),
            ..reply
        }
    }

    pub(super) fn own_side(&self) -> Side {
        if self.order.sender == Side::Client { Side::Server } else { Side::Client }
    }

    /// The error of a copy that cannot go on after this failure.
    pub(super) fn stopped_by(&self, path: &[u8], problem: &Problem) -> Error {
        let Problem { cause, reason } = problem.clone();
        let failure = Failure { path: names::shown(path), side: self.own_side(), cause, reason };
        Error::Local(std::io::Error::other(failure.to_string()))
    }
}

pub(super) fn wire_failure(path: &[u8], retry: bool, problem: Problem) -> WireFailure {
    WireFailure { path: path[..path.len().min(names::MAX_PATH_BYTES)].to_vec(), retry, problem }
}

pub(super) async fn receive_batch(session: &mut Session, message: &mut VecSink) -> Result<()> {
    match session.recv_into(message).await {
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            Err(Error::Protocol(format!("a batch of files of {message_bytes} bytes")))
        }
        Ok(0) => Err(Error::Protocol("an empty batch of files".to_owned())),
        received => received.map(drop),
    }
}

// A reply with ranges of a file has little else.
const _: () = assert!(MAX_REPORTED_BYTES + 2 * (4096 + multirail_tree::report::MAX_REASON_BYTES) < wire::BATCH_BYTES);
