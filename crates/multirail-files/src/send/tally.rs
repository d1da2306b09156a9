//! What the receiver has replied so far.

use super::order::Order;
use crate::queue::Answers;
use crate::wire::{BATCH_BYTES, Reply};
use multirail_net::error::{Error, Result};
use multirail_net::payload::VecSink;
use multirail_net::session::Receiver;
use multirail_net::sync::lock;
use multirail_tree::names;
use multirail_tree::report::{Failure, Progress, Report, Side};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::watch;

/// The most files that are sent again. Further ones have failed.
pub(super) const MAX_RETRIES: usize = 1024;
/// The most ranges of one file that a reply names.
const MAX_WANTED: usize = crate::pieces::MAX_PIECES;

/// The results so far. The futures that send and that read replies write to it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub report: Report,
    /// Wire paths of files to be sent again.
    pub again: Vec<Vec<u8>>,
    /// What each outstanding reply confirms, the oldest first.
    pub asked: VecDeque<Batched>,
    pub answers: Answers,
    /// The last go.
    pub go: Option<Vec<(u64, u64)>>,
}

/// Files that ended, and bytes of files in batches.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Batched {
    pub files: u64,
    pub bytes: u64,
}

impl Batched {
    /// Counts what the receiver has stored, or has failed to store.
    fn confirm(self, progress: &Progress) {
        progress.add_bytes(self.bytes);
    }
}

/// How many replies have arrived: those to requests for one, and all of them.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Replies {
    pub asked: u64,
    pub all: u64,
}

/// Reads replies until the last.
pub(super) async fn read_replies(
    receiver: &mut Receiver,
    order: &Order,
    tally: &Mutex<Tally>,
    replies: watch::Sender<Replies>,
) -> Result<()> {
    let other = if order.side == Side::Client { Side::Server } else { Side::Client };
    loop {
        let reply = receive_reply(receiver).await?;
        if let Some(failure) = reply.stopped {
            let (path, problem) = (names::shown(&failure.path), failure.problem);
            let failure = Failure { path, side: other, cause: problem.cause, reason: problem.reason };
            return Err(Error::Local(std::io::Error::other(failure.to_string())));
        }
        let mut tally = lock(tally);
        let Tally { report, again, asked, answers, go } = &mut *tally;
        order.progress.add_files(reply.counts.files.saturating_sub(report.files));
        order.progress.add_unchanged(reply.counts.unchanged.saturating_sub(report.unchanged));
        reply.counts.report(report);
        for failure in reply.failures {
            let is_path = failure.path.len() <= names::MAX_PATH_BYTES;
            if failure.problem.cause.is_passing() && !failure.retry && is_path && again.len() < MAX_RETRIES {
                again.push(failure.path);
            } else {
                report.fail(&names::shown(&failure.path), other, failure.problem);
            }
        }
        if let Some(on_change) = &order.on_change {
            reply.changes.iter().for_each(|(change, path)| on_change(*change, &names::shown(path)));
        }
        answers.add(reply.answers)?;
        if !reply.more {
            asked.pop_front().unwrap_or_default().confirm(&order.progress);
            if reply.wanted.len() > MAX_WANTED {
                return Err(Error::Protocol("too many ranges of a file".to_owned()));
            }
            *go = reply.go.then_some(reply.wanted);
        }
        drop(tally);
        if reply.finished {
            return Ok(());
        }
        replies.send_modify(|r| *r = Replies { asked: r.asked + u64::from(!reply.more), all: r.all + 1 });
    }
}

pub(crate) async fn receive_reply(receiver: &mut Receiver) -> Result<Reply> {
    let mut message = VecSink::new(BATCH_BYTES as u64);
    match receiver.recv_into(&mut message).await {
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            return Err(Error::Protocol(format!("a reply of {message_bytes} bytes")));
        }
        received => received?,
    };
    match postcard::take_from_bytes(&message.bytes) {
        Ok((reply, [])) => Ok(reply),
        _ => Err(Error::Protocol("an invalid reply".to_owned())),
    }
}
