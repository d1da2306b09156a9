//! The task that runs a session between calls.

use super::redial::Dialer;
use super::shared::Shared;
use crate::socket::ChannelSocket;
use futures_util::future::join;
use multirail_proto::background::OBSERVE_EVERY;
use multirail_proto::session::UNSENT_AFTER;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior};

/// Starts a session's maintenance task, which ends with the session. On the dialling side, `dialer`
/// reopens connections.
pub(super) fn spawn(shared: &Arc<Shared>, dialer: Option<Dialer>) {
    tokio::spawn(maintain(Arc::downgrade(shared), shared.unsent.clone(), dialer));
}

async fn maintain(session: Weak<Shared>, unsent: Arc<Notify>, dialer: Option<Dialer>) {
    let mut ticks = tokio::time::interval(OBSERVE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(deadline) = next_deadline(&session) {
        let work = join(send_unsent(&session, &unsent), yield_to_others(&session, &mut ticks));
        let _ = tokio::time::timeout_at(deadline, work).await;
        let Some(shared) = session.upgrade() else { return };
        let mut driver = shared.lock();
        if driver.machine.failure().is_some() {
            drop(driver);
            shared.wake();
            return;
        }
        driver.take_joining();
        let cx = &mut Context::from_waker(&shared.both);
        let control_died = driver.control.as_ref().is_some_and(|socket| !socket.info().alive);
        if control_died {
            let reset = driver.control.as_ref().is_some_and(ChannelSocket::take_reset);
            // The peer's last packets may be there before the runtime reports them.
            driver.drain_control();
            if reset {
                driver.end_control();
            } else {
                driver.lose_control();
            }
        }
        driver.time_out();
        if let Err(error) = driver.poll_control(cx) {
            tracing::debug!(%error, "the control connection");
        }
        if driver.machine.is_transmit_due() {
            driver.poll_transmit(cx, None);
        }
        let dials = std::mem::take(&mut driver.dials);
        drop(driver);
        if let Some(dialer) = &dialer {
            dials.into_iter().for_each(|request| dialer.start(&session, request));
        }
        shared.wake();
    }
}

/// The time of the machine's next call; `None` when the session is dropped.
fn next_deadline(session: &Weak<Shared>) -> Option<tokio::time::Instant> {
    let shared = session.upgrade()?;
    let driver = shared.lock();
    Some(driver.instant(driver.machine.poll_timeout()).into())
}

/// Adapts the rates of a session in the background to the other traffic. Never ready.
async fn yield_to_others(session: &Weak<Shared>, ticks: &mut Interval) -> Infallible {
    while let Some(shared) = session.upgrade() {
        if !shared.lock().yield_to_others() {
            break;
        }
        drop(shared);
        ticks.tick().await;
    }
    std::future::pending().await
}

/// Writes data that did not fit in the kernel's buffers when a call returned. Never ready.
async fn send_unsent(session: &Weak<Shared>, unsent: &Notify) -> Infallible {
    loop {
        unsent.notified().await;
        tokio::time::sleep(UNSENT_AFTER).await;
        poll_fn(|cx| {
            let Some(shared) = session.upgrade() else { return Poll::Ready(()) };
            let mut driver = shared.lock();
            if !driver.machine.is_transmit_due() {
                return Poll::Ready(());
            }
            let begun = driver.machine.has_current();
            driver.poll_transmit(cx, None);
            let due = driver.machine.is_transmit_due();
            let done = begun && !driver.machine.has_current();
            drop(driver);
            if done {
                // A call may be waiting for room in a socket, which wakes only the last task that
                // asked: this one.
                shared.wake();
            }
            if due { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::driver::SessionDriver;
    use super::super::mailbox::Joining;
    use super::super::sender::Sender;
    use super::*;
    use crate::handshake::Peer;
    use crate::secure::authorized_keys::Client;
    use crate::secure::identity::Identity;
    use crate::secure::keys::Protection;
    use multirail_proto::session::{COPY_LIMIT_BYTES, Role};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    /// Whether it was woken.
    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    const SMALL_BUFFER_BYTES: usize = 64 << 10;

    #[tokio::test]
    async fn maintenance_wakes_a_call_whose_socket_it_wrote_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Small buffers, which the kernel does not enlarge, fill soon.
        socket2::SockRef::from(&listener).set_recv_buffer_size(SMALL_BUFFER_BYTES).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(SMALL_BUFFER_BYTES).unwrap();
        let mut peer = listener.accept().unwrap().0;
        peer.set_nonblocking(true).unwrap();
        let driver = SessionDriver::new(&Config::default(), Role::Listener);
        driver.mailbox.put(Joining::Data { stream, protection: Protection::Plaintext, id: 0, rail: 0, replaces: None });
        let known = Peer { key: Identity::of_process().public_key(), has_token: false };
        let shared = Shared::new(driver, known, Client::default());
        // The rest of maintenance does not run, because it would wake every call at its next turn.
        let (session, unsent) = (Arc::downgrade(&shared), shared.unsent.clone());
        let mut maintenance = pin!(send_unsent(&session, &unsent));

        let woken = Arc::new(Flag::default());
        let waker = Waker::from(woken.clone());
        let begin = || {
            let mut sender = Sender::new(shared.clone());
            Box::pin(async move { sender.send(&[7; COPY_LIMIT_BYTES as usize]).await })
        };
        let mut waiting = begin();
        // Sends until a call has to wait without pending work that would wake it: the call polls
        // the socket, and maintenance polls it afterwards, since an earlier call has reported
        // unsent data.
        for round in 0.. {
            assert!(round < 1000, "the socket never filled");
            woken.0.store(false, Ordering::Relaxed);
            if waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                waiting = begin();
                continue;
            }
            shared.unsent.notify_one();
            tokio::select! {
                biased;
                _ = &mut maintenance => unreachable!(),
                () = tokio::time::sleep(10 * UNSENT_AFTER) => {}
            }
            if !woken.0.load(Ordering::Relaxed) {
                break;
            }
        }
        let mut buffer = vec![0; 1 << 20];
        for _ in 0..10_000 {
            let _ = peer.read(&mut buffer);
            tokio::select! {
                biased;
                _ = &mut maintenance => unreachable!(),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            if !shared.lock().machine.has_current() {
                break;
            }
        }
        assert!(!shared.lock().machine.has_current(), "maintenance sent the message");
        assert!(woken.0.load(Ordering::Relaxed), "maintenance woke the waiting call");
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
}
