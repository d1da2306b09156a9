//! The handle that a member keeps for each of its links.

use super::arrival::LastArrival;
use super::owner::LinkOwner;
use super::queue::{LinkQueue, Next};
use super::task;
use multirail_net::{Error, Session};
use multirail_proto::multicast::MemberId;
use multirail_proto::multicast::member::ControlItem;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A link with its queue. Dropping it ends the link at once.
#[derive(Debug)]
pub(crate) struct LinkHandle {
    number: u64,
    queue: LinkQueue,
    news: Arc<Notify>,
    arrival: Arc<LastArrival>,
    task: AbortHandle,
}

impl LinkHandle {
    /// Starts the task of link `number` to `peer`. The caller holds the member's lock, on which the
    /// task waits, so that the task finds the link in its place.
    pub(crate) fn start(
        owner: Arc<dyn LinkOwner>,
        runtime: &Handle,
        peer: MemberId,
        number: u64,
        session: Session,
    ) -> Self {
        let news = Arc::new(Notify::new());
        let arrival = Arc::new(LastArrival::default());
        let task = runtime.spawn(task::run(owner, peer, number, session, news.clone(), arrival.clone())).abort_handle();
        Self { number, queue: LinkQueue::default(), news, arrival, task }
    }

    /// The number that the state machine gave the link.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// When bytes arrived last, or when the link began.
    pub(crate) fn heard_at(&self) -> Instant {
        self.arrival.at()
    }

    /// Queues a control item.
    pub(crate) fn push(&mut self, item: ControlItem) {
        self.queue.push(item);
        self.news.notify_one();
    }

    /// Queues a manifest frame.
    pub(crate) fn push_manifest(&mut self, frame: Arc<Vec<u8>>) {
        self.queue.push_manifest(frame);
        self.news.notify_one();
    }

    /// Queues a piece.
    pub(crate) fn push_piece(&mut self, transfer: u32, piece: u32) {
        self.queue.push_piece(transfer, piece);
        self.news.notify_one();
    }

    /// Removes a piece that has not begun from the queue.
    pub(crate) fn withdraw(&mut self, transfer: u32, piece: u32) {
        self.queue.withdraw(transfer, piece);
    }

    /// Removes all pieces of a transfer from the queue.
    pub(crate) fn forget(&mut self, transfer: u32) {
        self.queue.forget(transfer);
    }

    /// Ends the link after what is queued.
    pub(crate) fn close(&mut self) {
        self.queue.close();
        self.news.notify_one();
    }

    /// What the link sends next.
    pub(crate) fn next(&mut self) -> Result<Next, Error> {
        self.queue.next()
    }

    /// `sent_bytes` of the current piece went out; `None`: its last.
    pub(crate) fn advance(&mut self, sent_bytes: Option<u32>) {
        self.queue.advance(sent_bytes);
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
