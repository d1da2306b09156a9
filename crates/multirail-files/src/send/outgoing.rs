//! The course of a copy: sources, files that are sent again, deletions.

use super::found::{Entry, HardLinks, Opener};
use super::order::Order;
use super::tally::{Batched, MAX_RETRIES, Replies, Tally, read_replies};
use crate::queue::Queue;
use crate::wire::{Batch, Item};
use multirail_net::Session;
use multirail_net::error::{Error, Result};
use multirail_net::session::Sender;
use multirail_net::sync::lock;
use multirail_tree::names;
use multirail_tree::report::{Problem, Report};
use std::sync::Mutex;
use tokio::sync::watch;

/// The most replies that may be outstanding. It bounds how far the receiver can fall behind.
const MAX_OPEN_ASKS: u64 = 8;

/// Sends all sources and returns when the receiver has stored them.
pub(crate) async fn send_all(session: &mut Session, order: &Order) -> Result<Report> {
    let tally = Mutex::new(Tally::default());
    let (replies, replied) = watch::channel(Replies::default());
    let (sender, receiver) = session.split();
    let mut outgoing = Outgoing {
        order,
        tally: &tally,
        sender,
        replied,
        asked: 0,
        unasked: Batched::default(),
        batch: Batch::default(),
        content: Vec::new(),
        queue: Queue::new(),
        announced: Vec::new(),
        unflushed: 0,
        opener: Opener::default(),
        links: HardLinks::default(),
    };
    // Replies are read all the time, so that neither side waits for the other to read.
    futures_util::future::try_join(outgoing.run(), read_replies(receiver, order, &tally, replies)).await?;
    Ok(std::mem::take(&mut lock(&tally).report))
}

pub(super) struct Outgoing<'a> {
    pub(super) order: &'a Order,
    pub(super) tally: &'a Mutex<Tally>,
    pub(super) sender: &'a mut Sender,
    pub(super) replied: watch::Receiver<Replies>,
    pub(super) asked: u64,
    /// What was sent since the last request for a reply.
    pub(super) unasked: Batched,
    pub(super) batch: Batch,
    /// The content of a small file.
    pub(super) content: Vec<u8>,
    /// What was announced.
    pub(super) queue: Queue<Entry>,
    /// The path of the last announcement.
    pub(super) announced: Vec<u8>,
    /// How many announcements wait to be sent.
    pub(super) unflushed: usize,
    pub(super) opener: Opener,
    pub(super) links: HardLinks,
}

impl Outgoing<'_> {
    pub(super) async fn run(&mut self) -> Result<()> {
        for index in 0..self.order.sources.len() {
            self.source(index).await?;
        }
        self.push(&Item::FoundAll).await?;
        self.order.progress.find_all();
        self.settle(true).await?;
        self.ask().await?;
        self.wait_for(self.asked).await?;
        let again = std::mem::take(&mut lock(self.tally).again);
        for path in again {
            lock(self.tally).report.retried += 1;
            self.file_again(&path).await?;
        }
        if self.order.terms.delete {
            self.ask().await?;
            self.wait_for(self.asked).await?;
            self.keep_all().await?;
        }
        self.push(&Item::Finish).await?;
        self.expect_reply();
        self.flush().await
    }

    pub(super) async fn skip(&mut self, path: &[u8], what: &str) -> Result<()> {
        lock(self.tally).report.skip(&names::shown(path), what);
        self.push(&Item::Skipped { path, what }).await
    }

    /// Reports a failure of this side before anything of the file was sent.
    pub(super) async fn fail(&mut self, path: &[u8], retry: bool, problem: Problem) -> Result<()> {
        if self.note(path, retry, &problem) {
            self.push(&Item::Failed { path, problem }).await?;
        }
        Ok(())
    }

    /// Notes a failure of this side and returns whether it is final.
    pub(super) fn note(&mut self, path: &[u8], retry: bool, problem: &Problem) -> bool {
        let mut tally = lock(self.tally);
        if problem.cause.is_passing() && !retry && tally.again.len() < MAX_RETRIES {
            tally.again.push(path.to_vec());
            return false;
        }
        tally.report.fail(&names::shown(path), self.order.side, problem.clone());
        true
    }

    pub(super) async fn push(&mut self, item: &Item<'_>) -> Result<()> {
        if !self.batch.push(item)? {
            self.flush().await?;
            self.batch.push(item)?;
        }
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> Result<()> {
        self.unflushed = 0;
        if !self.batch.is_empty() {
            self.sender.send(self.batch.bytes()).await?;
            self.batch.clear();
        }
        Ok(())
    }

    /// Asks the receiver for a reply, and waits if too many replies are outstanding.
    pub(super) async fn ask(&mut self) -> Result<()> {
        self.push(&Item::Ask).await?;
        self.expect_reply();
        self.flush().await?;
        self.wait_for(self.asked.saturating_sub(MAX_OPEN_ASKS)).await
    }

    /// The batch asks for a reply, which confirms everything before it.
    pub(super) fn expect_reply(&mut self) {
        self.asked += 1;
        lock(self.tally).asked.push_back(std::mem::take(&mut self.unasked));
    }

    pub(super) async fn wait_for(&mut self, count: u64) -> Result<()> {
        self.replied.wait_for(|r| r.asked >= count).await.map(drop).map_err(|_| Error::Closed)
    }
}
