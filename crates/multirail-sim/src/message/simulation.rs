//! One message from the dialling host to the other one.

use super::application::Application;
use super::outcome::Outcome;
use super::setup::{Setup, Stalled};
use crate::schedule::ideal_finish_us;
use crate::session::{DIALLER as SENDER, LISTENER as RECEIVER, Session, Timing};
use multirail_proto::session::COPY_LIMIT_BYTES;
use multirail_proto::wire::Frame;

/// What a packet carries; the grain in which bytes arrive, until a message has very many packets.
const PACKET_BYTES: u64 = 1448;
/// No message is cut into more packets than this.
const MAX_PACKETS: u64 = 2048;
/// If nothing but timers happens for so long, the message will never arrive.
const STALLED_US: f64 = 10e6;

pub(super) struct Simulation<'a> {
    setup: &'a Setup,
    session: Session,
    application: Application,
    /// When the message begins.
    begun_us: f64,
    outcome: Outcome,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        let timing = Timing {
            packet_bytes: PACKET_BYTES.max(setup.message_bytes.div_ceil(MAX_PACKETS)) as usize,
            window_bytes: setup.window_bytes,
            detect_us: setup.detect_us,
            reopen_us: setup.reopen_us,
        };
        Self {
            setup,
            session: Session::new(&setup.rails, timing, setup.strategy, setup.fragment_bytes as u32),
            application: Application::new(setup.message_bytes),
            begun_us: 0.0,
            outcome: Outcome {
                finish_us: 0.0,
                ideal_us: ideal_finish_us(&setup.rails, &setup.schedule, setup.message_bytes),
                channel_bytes: Vec::new(),
                headers: 0,
                starts: 0,
                continues: 0,
                duplicate_bytes: 0,
                rescues: 0,
            },
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome, Stalled> {
        if self.setup.known_rates {
            while !self.is_probed() {
                self.step()?;
            }
        }
        self.begin();
        while !self.application.complete {
            self.step()?;
        }
        let Self { mut outcome, mut session, application, begun_us, .. } = self;
        outcome.finish_us = session.now_us() - begun_us;
        outcome.channel_bytes = application.delivered_bytes;
        outcome.channel_bytes.resize(session.connection_count(), 0);
        outcome.duplicate_bytes = session.host(RECEIVER).machine.stats().duplicate_bytes;
        outcome.rescues = session.host(SENDER).machine.stats().rescues;
        Ok(outcome)
    }

    /// Whether the first probes of the session have measured all rates.
    fn is_probed(&mut self) -> bool {
        let sender = &self.session.host(SENDER).machine;
        let is_known = sender.channels().all(|c| c.rate_bytes_s > 0.0) && !sender.is_transmit_due();
        self.session.connection_count() == 1 || is_known && self.session.is_acknowledged(SENDER)
    }

    fn begin(&mut self) {
        self.begun_us = self.session.now_us();
        self.session.begin_schedule(&self.setup.schedule);
        let (now, total_bytes) = (self.session.now(), self.setup.message_bytes);
        let copy = (total_bytes <= COPY_LIMIT_BYTES).then(|| self.application.message.clone());
        let grain_bytes = self.setup.fragment_bytes;
        self.session.call(SENDER, |m, paths| {
            assert!(m.can_begin(total_bytes));
            m.begin_message(now, total_bytes, copy, grain_bytes, paths)
        });
    }

    /// Lets the sender send, then lets time pass until something happens.
    fn step(&mut self) -> Result<(), Stalled> {
        let Self { session, application, outcome, .. } = self;
        let now = session.now();
        let rescue_at = session.call(SENDER, |m, paths| m.poll_rescue(now, paths));
        session.write_all(SENDER, &application.message, &mut |head| count_frames(head, outcome));
        let rescue_us = rescue_at.map_or(f64::INFINITY, |at| at.since_zero().as_nanos() as f64 / 1000.0);
        if let Some(arrival) = session.advance(rescue_us) {
            let now = session.now();
            application.receive(session.host(RECEIVER), &arrival, now);
        } else if session.now_us() > session.progress_us().max(self.begun_us) + STALLED_US {
            let at_us = session.now_us() - self.begun_us;
            return Err(Stalled { at_us, arrived_bytes: application.placed.bytes() });
        }
        session.exchange_control();
        Ok(())
    }
}

/// Counts the headers before a run.
fn count_frames(mut head: &[u8], outcome: &mut Outcome) {
    while let Ok(Some((frame, length))) = Frame::decode(head) {
        match frame {
            Frame::Run { .. } | Frame::Whole { .. } => outcome.headers += 1,
            Frame::Start { .. } => outcome.starts += 1,
            Frame::Continue => outcome.continues += 1,
            Frame::Open { .. } | Frame::Pad { .. } | Frame::End { .. } => {}
        }
        head = &head[length..];
    }
}
