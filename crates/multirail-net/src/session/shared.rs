//! A session's driver behind its lock, and the wakers of the calls that wait for it.

use super::driver::SessionDriver;
use super::mailbox::Mailbox;
use super::status::RailStatus;
use crate::error::Result;
use crate::handshake::Peer;
use crate::payload::Sink;
use crate::secure::authorized_keys::Client;
use crate::sync::lock;
use crate::traffic::{Counted, Entry, Part};
use futures_util::task::AtomicWaker;
use multirail_proto::session::{COPY_LIMIT_BYTES, Failure, Role};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::Notify;

/// A session's driver, and its waiting calls.
///
/// Both halves register for every event under one waker, which wakes both: each half also drives
/// the work that the other waits for.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) mailbox: Arc<Mailbox>,
    /// Who the peer is.
    pub(super) identity: Peer,
    /// What the peer may ask of this side.
    pub(super) client: Client,
    driver: Mutex<SessionDriver>,
    pub(super) send_waker: AtomicWaker,
    pub(super) receive_waker: AtomicWaker,
    pub(super) both: Waker,
    /// Tells the maintenance task that a call returned before the kernel had room for all its data.
    pub(super) unsent: Arc<Notify>,
    pub(super) entry: Entry,
}

/// Makes a message of up to [`COPY_LIMIT_BYTES`] in the empty buffer that its argument gives; `None`
/// when there is nothing to send.
pub(crate) type MakeMessage<'a> = dyn FnMut(&mut dyn FnMut() -> Vec<u8>) -> Option<Made> + 'a;

/// A message to send.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) message: Vec<u8>,
    /// Further ones follow without a pause.
    pub(crate) more_is_behind: bool,
}

/// Where a message has arrived.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// In the sink: the message whose turn it was.
    InSink,
    /// Here: a message that overtook others.
    Overtaking(Vec<u8>),
}

#[derive(Debug)]
struct Both(Weak<Shared>);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.wake();
        }
    }
}

impl Shared {
    pub(super) fn new(driver: SessionDriver, identity: Peer, client: Client) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            mailbox: driver.mailbox.clone(),
            identity,
            client: client.clone(),
            driver: Mutex::new(driver),
            send_waker: AtomicWaker::new(),
            receive_waker: AtomicWaker::new(),
            both: Waker::from(Arc::new(Both(this.clone()))),
            unsent: Arc::default(),
            entry: Entry::new(this.clone()),
        })
    }

    /// The driver. A panic while it was locked is a bug of this crate; its data is as consistent as
    /// after an early return.
    pub(super) fn lock(&self) -> MutexGuard<'_, SessionDriver> {
        lock(&self.driver)
    }

    /// Wakes both halves.
    pub(super) fn wake(&self) {
        self.send_waker.wake();
        self.receive_waker.wake();
    }

    /// Continues to send copied messages, and starts one with all of `bytes` as soon as possible;
    /// `bytes` is then empty. Ready when the kernel has taken everything. At most
    /// [`COPY_LIMIT_BYTES`] at a time.
    pub(crate) fn poll_push(&self, waker: &Waker, bytes: &mut Vec<u8>) -> Poll<Result<()>> {
        debug_assert!(bytes.len() as u64 <= COPY_LIMIT_BYTES);
        self.send_waker.register(waker);
        let cx = &mut Context::from_waker(&self.both);
        let mut driver = self.lock();
        driver.check()?;
        driver.take_joining();
        driver.poll_control(cx)?;
        loop {
            let begins = !bytes.is_empty() && driver.machine.can_begin(bytes.len() as u64);
            if begins {
                let next = driver.machine.buffer(bytes.len());
                driver.begin_message(bytes.len() as u64, Some(std::mem::replace(bytes, next)), 1);
            }
            driver.poll_transmit(cx, None);
            driver.check()?;
            if driver.machine.has_current() {
                return Poll::Pending;
            }
            if bytes.is_empty() {
                return if driver.machine.is_flushed() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if !begins && !driver.machine.can_begin(bytes.len() as u64) {
                return Poll::Pending;
            }
        }
    }

    /// Sends messages while the session takes them. Ready when there is nothing to send, or the session
    /// has failed.
    pub(crate) fn poll_send_all(&self, waker: &Waker, make: &mut MakeMessage<'_>) -> Poll<Result<()>> {
        self.send_waker.register(waker);
        let cx = &mut Context::from_waker(&self.both);
        let mut driver = self.lock();
        driver.take_joining();
        driver.poll_control(cx)?;
        loop {
            driver.poll_transmit(cx, None);
            driver.check()?;
            if !driver.machine.can_begin(COPY_LIMIT_BYTES) {
                return Poll::Pending;
            }
            let buffer = &mut || driver.machine.buffer(COPY_LIMIT_BYTES as usize);
            let Some(Made { message, more_is_behind }) = make(buffer) else { return Poll::Ready(Ok(())) };
            if more_is_behind {
                driver.machine.more_is_behind();
            }
            driver.begin_message(message.len() as u64, Some(message), 1);
        }
    }

    /// Receives a message, not necessarily the one whose turn it is. It is in `sink` if
    /// [`Arrived::InSink`]; as long as this is pending, `sink` keeps what has arrived.
    pub(crate) fn poll_recv_any(&self, waker: &Waker, sink: &mut dyn Sink) -> Poll<Result<Arrived>> {
        self.receive_waker.register(waker);
        let cx = &mut Context::from_waker(&self.both);
        let mut driver = self.lock();
        driver.check()?;
        driver.take_joining();
        driver.poll_control(cx)?;
        if driver.poll_receive(cx, sink, false)?.is_ready() {
            return Poll::Ready(Ok(Arrived::InSink));
        }
        match driver.machine.take_overtaking() {
            Some(message) => Poll::Ready(Ok(Arrived::Overtaking(message))),
            None => Poll::Pending,
        }
    }

    /// Fails with the session's error if it is over.
    pub(crate) fn check(&self) -> Result<()> {
        self.lock().check()
    }

    /// The rate at which the peer received lately, over all rails; 0 before the first measurement.
    pub(crate) fn rate_bytes_s(&self) -> f64 {
        self.lock().machine.channels().filter(|channel| channel.up).map(|channel| channel.rate_bytes_s).sum()
    }

    /// Which side of the session this is.
    pub(crate) fn role(&self) -> Role {
        self.lock().machine.role()
    }

    /// The state of the session's rails.
    pub(crate) fn rails(&self) -> Vec<RailStatus> {
        self.lock().rails()
    }

    /// Tells the peer that no more messages follow; ready when it has received all of them.
    pub(crate) fn poll_finish(&self, waker: &Waker) -> Poll<Result<()>> {
        self.send_waker.register(waker);
        let cx = &mut Context::from_waker(&self.both);
        let mut driver = self.lock();
        driver.check()?;
        driver.take_joining();
        driver.machine.close();
        driver.poll_control(cx)?;
        driver.poll_transmit(cx, None);
        if driver.machine.is_finished(driver.now()) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Counted for Shared {
    fn part(&self) -> Option<Part> {
        self.driver.try_lock().ok().map(|driver| driver.part())
    }

    fn end(&self, reason: String) {
        self.lock().fail(Failure::Ended(reason));
        self.wake();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let part = self.lock().part();
        self.entry.end(part);
    }
}

/// Ends the session if a future is dropped while the session refers to the future's memory.
pub(super) struct CallGuard<'a> {
    pub(super) shared: &'a Shared,
    /// The operation, named in the error of later calls.
    pub(super) what: &'static str,
    pub(super) armed: bool,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.shared.lock().fail(Failure::Cancelled(self.what));
            self.shared.wake();
        }
    }
}
