//! Two hosts with streams, driven as the I/O crate drives them.

use super::setup::Setup;
use super::sink::Sink;
use crate::session::{DIALLER, LISTENER, Session, Timing};
use multirail_proto::session::{COPY_LIMIT_BYTES, Role};
use multirail_proto::streams::{Streams, message_bytes};
use multirail_proto::striping::Strategy;

/// Messages of streams are in memory and need no round cuts.
const FRAGMENT_BYTES: u32 = 1;

/// A session between two hosts that carries byte streams. Host 0 has dialled.
pub struct StreamSession {
    session: Session,
    streams: [Streams; 2],
    sinks: [Sink; 2],
}

impl StreamSession {
    /// Connects the two hosts. The schedule of the rails begins now.
    pub fn new(setup: &Setup) -> Self {
        let Setup { packet_bytes, detect_us, reopen_us, .. } = *setup;
        let timing = Timing { packet_bytes, window_bytes: f64::INFINITY, detect_us, reopen_us };
        let mut session = Session::new(&setup.rails, timing, Strategy::Adaptive, FRAGMENT_BYTES);
        session.begin_schedule(&setup.schedule);
        Self { session, streams: [Role::Dialler, Role::Listener].map(Streams::new), sinks: Default::default() }
    }

    /// The virtual time.
    pub fn now_us(&self) -> f64 {
        self.session.now_us()
    }

    /// The streams of a host, for all that its application does.
    pub fn streams(&mut self, host: usize) -> &mut Streams {
        &mut self.streams[host]
    }

    /// Lets both hosts send, then lets time pass until something happens, at most until `until_us`.
    pub fn step(&mut self, until_us: f64) {
        self.send(DIALLER);
        self.send(LISTENER);
        if let Some(arrival) = self.session.advance(until_us) {
            let (host, now) = (arrival.host, self.session.now());
            self.sinks[host].receive(self.session.host(host), &mut self.streams[host], &arrival, now);
        }
        self.session.exchange_control();
    }

    /// Sends messages while the session takes them.
    fn send(&mut self, host: usize) {
        let now = self.session.now();
        loop {
            self.session.write_all(host, &[], &mut |_| ());
            let machine = &mut self.session.host(host).machine;
            if !machine.can_begin(COPY_LIMIT_BYTES) || !self.streams[host].is_due() {
                return;
            }
            let mut message = machine.buffer(COPY_LIMIT_BYTES as usize);
            let rate_bytes_s =
                machine.channels().filter(|channel| channel.up).map(|channel| channel.rate_bytes_s).sum();
            if !self.streams[host].next_message(&mut message, message_bytes(rate_bytes_s)) {
                return;
            }
            if self.streams[host].is_bulk() {
                machine.more_is_behind();
            }
            let total_bytes = message.len() as u64;
            self.session.call(host, |m, paths| m.begin_message(now, total_bytes, Some(message), 1, paths));
        }
    }
}
