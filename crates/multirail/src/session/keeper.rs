//! Looks after a session while no call does: dead channels, late reports, measurements, and the end.

use super::state::{Failure, State};
use super::tune::Tuner;
use super::{Config, Shared, dial};
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How often. Late reports and dead rails wait at most this long.
const EVERY: Duration = Duration::from_millis(100);
/// A channel that is left out is measured again this often while others carry messages, so that it is noticed when it
/// has become better.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// How long what a call left unsent waits for the next call to take it along.
const UNSENT_AFTER: Duration = Duration::from_micros(500);

/// Starts the keeper of a session. It ends with the session. `dialer`: how to open channels again (the client's side).
pub(super) fn spawn(shared: &Arc<Shared>, dialer: Option<dial::Dialer>) {
    tokio::spawn(keep(Arc::downgrade(shared), shared.unsent.clone(), dialer));
}

async fn keep(session: Weak<Shared>, unsent: Arc<Notify>, mut dialer: Option<dial::Dialer>) {
    let mut probed = Instant::now();
    let mut sent_before = Vec::new();
    let mut tuner = Tuner::new();
    loop {
        let _ = tokio::time::timeout(EVERY, send_unsent(&session, &unsent)).await;
        let Some(shared) = session.upgrade() else { return };
        let mut state = shared.lock();
        if state.failure.is_some() {
            drop(state);
            shared.wake();
            return;
        }
        state.take_joining();
        state.look_at_sockets();
        if probed.elapsed() >= PROBE_EVERY {
            probed = Instant::now();
            state.probe_unused(&mut sent_before);
        }
        let cx = &mut Context::from_waker(&shared.both);
        state.report_leftovers();
        let control_died = state.control.socket.as_ref().is_some_and(|s| !s.info().alive);
        if control_died {
            // A peer's last words may be there, before the runtime has told of them.
            state.control.drain();
        }
        let heard = state.poll_control(cx);
        if let Err(error) = heard {
            tracing::debug!(%error, "the control connection");
        }
        if control_died {
            state.control.lose();
        }
        if state.transmit_due() {
            state.poll_transmit(cx, None);
        }
        state.close_retired();
        let more = match &dialer {
            Some(_) if state.config.channels_per_rail == Config::AUTO => tuner.tune(&mut state),
            _ => Vec::new(),
        };
        state.drop_dead_channels();
        let dark = state.dark_since.map(|since| since.elapsed());
        if !state.peer_gone && dark.is_some_and(|d| d > state.config.give_up_after) {
            let after = state.config.give_up_after;
            state.fail(Failure::AllRailsLost(after));
        }
        let lost = std::mem::take(&mut state.lost);
        let control_lost = state.control.socket.is_none();
        drop(state);
        if let Some(dialer) = &mut dialer {
            dialer.reopen(&session, lost, control_lost);
            dialer.open_more(&session, more);
        }
        shared.wake();
    }
}

/// Hands to the kernel what it had no room for when a call returned. Never ready.
async fn send_unsent(session: &Weak<Shared>, unsent: &Notify) -> Infallible {
    loop {
        unsent.notified().await;
        tokio::time::sleep(UNSENT_AFTER).await;
        poll_fn(|cx| {
            let Some(shared) = session.upgrade() else { return Poll::Ready(()) };
            let mut state = shared.lock();
            if !state.transmit_due() {
                return Poll::Ready(());
            }
            let begun = state.tx.current.is_some();
            state.poll_transmit(cx, None);
            let due = state.transmit_due();
            let done = begun && state.tx.current.is_none();
            drop(state);
            if done {
                // A call may wait for room in a socket, which only tells the last who asked: this one.
                shared.wake();
            }
            if due { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

impl State {
    /// Notices connections that died while nobody used them, and takes round trips.
    fn look_at_sockets(&mut self) {
        for index in 0..self.channels.len() {
            let channel = &mut self.channels[index];
            let Some(socket) = &channel.socket else { continue };
            let info = socket.info();
            if !info.alive {
                self.channel_lost(index, "the kernel gave the connection up");
                continue;
            }
            if info.ended && socket.unread_bytes() == 0 && !channel.rx.has_staged() {
                self.channel_lost(index, "the peer closed it");
                continue;
            }
            socket.set_patient(info.window_closed);
            channel.rtt_us = info.rtt_us;
            if info.min_rtt_us > 0 {
                channel.latency_us = f64::from(info.min_rtt_us) / 2.0;
            }
            self.watch_progress(index, info.window_closed);
        }
    }

    /// Measures channels that carried nothing while others did.
    fn probe_unused(&mut self, sent_before: &mut Vec<(u32, u64)>) {
        let sent: Vec<(u32, u64)> = self.channels.iter().map(|c| (c.id, c.tx.payload_bytes)).collect();
        let before = |id: u32| sent_before.iter().find(|(i, _)| *i == id).map_or(0, |(_, b)| *b);
        if sent.iter().any(|(id, bytes)| *bytes > before(*id)) {
            for (channel, (id, bytes)) in self.channels.iter_mut().zip(&sent) {
                if *bytes == before(*id) && channel.socket.is_some() {
                    channel.tx.queue_probe();
                }
            }
        }
        *sent_before = sent;
    }

    /// Forgets lost channels once no message refers to them by their place in the table.
    fn drop_dead_channels(&mut self) {
        if self.all_confirmed() && !self.receive_begun() {
            self.channels.retain(|c| c.socket.is_some());
            self.count_channels();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::Joining;
    use super::super::{Sender, transmit::COPY_LIMIT_BYTES};
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    /// Whether somebody was woken.
    #[derive(Default)]
    struct Told(AtomicBool);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn who_waits_for_a_socket_is_told_when_the_keeper_has_sent_in_his_place() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        peer.set_nonblocking(true).unwrap();
        let state = State::new(Config::default());
        state.mailbox.put(Joining::Data { stream, id: 0, rail: 0, replaces: None });
        let shared = Shared::new(state);
        // The rest of the keeper does not run: it would wake everybody at its next look.
        let (session, unsent) = (Arc::downgrade(&shared), shared.unsent.clone());
        let mut keeper = pin!(send_unsent(&session, &unsent));

        let told = Arc::new(Told::default());
        let waker = Waker::from(told.clone());
        let begin = || {
            let mut sender = Sender::new(shared.clone());
            Box::pin(async move { sender.send(&[7; COPY_LIMIT_BYTES as usize]).await })
        };
        let mut waiting = begin();
        // Until one has to wait, and nothing that was under way wakes it any more: it asks the socket, and after it the keeper, whom a call
        // before has told of something unsent.
        for round in 0.. {
            assert!(round < 1000, "the socket is never full");
            told.0.store(false, Ordering::Relaxed);
            if waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                waiting = begin();
                continue;
            }
            shared.unsent.notify_one();
            tokio::select! {
                biased;
                _ = &mut keeper => unreachable!(),
                () = tokio::time::sleep(10 * UNSENT_AFTER) => {}
            }
            if !told.0.load(Ordering::Relaxed) {
                break;
            }
        }
        let mut buffer = vec![0; 1 << 20];
        for _ in 0..10_000 {
            let _ = peer.read(&mut buffer);
            tokio::select! {
                biased;
                _ = &mut keeper => unreachable!(),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            if shared.lock().tx.current.is_none() {
                break;
            }
        }
        assert!(shared.lock().tx.current.is_none(), "the keeper has sent it");
        assert!(told.0.load(Ordering::Relaxed), "and has told who waited");
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
}
