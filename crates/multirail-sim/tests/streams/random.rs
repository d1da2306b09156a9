//! Random streams of both hosts over random rails, one of which is cut and heals.

use crate::oracle::{Ending, Oracle};
use multirail_proto::rng::Rng;
use multirail_proto::streams::{ReadOutcome, ResetCode, StreamEvent, StreamId, WriteOutcome};
use multirail_sim::schedule::{At, Change, Rail};
use multirail_sim::streams::{Setup, StreamSession};
use multirail_testing::for_seeds;
use std::collections::BTreeMap;

/// A host that knows so many streams opens no more.
const ENOUGH_STREAMS: usize = 24;
/// What a host writes at a time.
const PIECE_BYTES: u64 = 20_000;
/// How long both hosts make trouble.
const TROUBLE_US: f64 = 600_000.0;
/// How often they end what is left after that.
const CONCLUDE_EVERY_US: f64 = 5_000.0;
/// Whatever is not over so long after that waits for ever.
const PATIENCE_US: f64 = 120e6;

/// How a host uses its end of a stream.
#[derive(Debug, Clone, Copy)]
struct Habit {
    /// What it still has to write.
    left_bytes: u64,
    /// Writes as soon as there is room, not only now and then.
    writes_at_once: bool,
    reads: Reads,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    AtOnce,
    NowAndThen,
    AtTheEnd,
}

struct Run {
    session: StreamSession,
    oracle: Oracle,
    habits: [BTreeMap<StreamId, Habit>; 2],
    resets: bool,
    rng: Rng,
}

/// One to four rails. One of them is down for a while: so briefly that its connections survive, or
/// until they are lost.
fn setup(rng: &mut Rng) -> Setup {
    let rail = |rng: &mut Rng| {
        let mut rail = Rail::new(4.0 * 50f64.powf(rng.unit()), 200.0 * 100f64.powf(rng.unit()));
        rail.channels = 1 + rng.below(2) as usize;
        rail.jitter_us = [0.0, 300.0, 8_000.0][rng.below(3) as usize];
        rail.link.queue_bytes = rng.below(100_000);
        rail
    };
    let count = 1 + rng.below(4) as usize;
    let mut setup = Setup::new((0..count).map(|_| rail(rng)).collect());
    setup.detect_us = 50_000.0 + 150_000.0 * rng.unit();
    let (cut, down_us) = (rng.below(count as u64) as usize, 50_000.0 + 300_000.0 * rng.unit());
    let up_us = down_us + 500_000.0 * rng.unit();
    setup.schedule = vec![At::new(down_us, cut, Change::Down), At::new(up_us, cut, Change::Up)];
    setup
}

impl Run {
    fn new(mut rng: Rng) -> Self {
        let session = StreamSession::new(&setup(&mut rng));
        let resets = rng.below(2) == 0;
        Self { session, oracle: Oracle::default(), habits: Default::default(), resets, rng }
    }

    fn learn(&mut self, host: usize, stream: StreamId) {
        let rng = &mut self.rng;
        let left_bytes = [0, rng.below(100), rng.below(100_000), rng.below(1_500_000)][rng.below(4) as usize];
        let reads = [Reads::AtOnce, Reads::AtOnce, Reads::NowAndThen, Reads::AtTheEnd][rng.below(4) as usize];
        let habit = Habit { left_bytes, writes_at_once: rng.below(2) == 0, reads };
        self.habits[host].insert(stream, habit);
        self.oracle.opened(host, stream);
    }

    fn write(&mut self, host: usize, stream: StreamId) -> bool {
        let habit = self.habits[host].get_mut(&stream).expect("the host knows it");
        if habit.left_bytes == 0 {
            return false;
        }
        let room = match self.session.streams(host).room(stream) {
            WriteOutcome::Bytes(room) => room as u64,
            WriteOutcome::Reset(code) => {
                self.end(host, stream, Ending::Reset(code));
                return false;
            }
            WriteOutcome::Wait => return false,
            WriteOutcome::Ended => panic!("stream {stream} was not finished"),
        };
        let count = (1 + self.rng.below(habit.left_bytes.min(PIECE_BYTES))).min(room) as usize;
        let bytes: Vec<u8> =
            (0..count.div_ceil(8)).flat_map(|_| self.rng.next_u64().to_le_bytes()).take(count).collect();
        assert_eq!(self.session.streams(host).write(stream, &bytes), WriteOutcome::Bytes(count));
        habit.left_bytes -= count as u64;
        self.oracle.wrote(host, stream, &bytes);
        true
    }

    fn finish(&mut self, host: usize, stream: StreamId) {
        self.habits[host].get_mut(&stream).expect("the host knows it").left_bytes = 0;
        self.session.streams(host).finish(stream);
        self.oracle.finished(host, stream);
    }

    fn read(&mut self, host: usize, stream: StreamId, most: usize) -> bool {
        match self.session.streams(host).read(stream) {
            ReadOutcome::Bytes(bytes) => {
                let count = bytes.len().min(most);
                self.oracle.read(host, stream, &bytes[..count]);
                self.session.streams(host).consume(stream, count);
                return true;
            }
            ReadOutcome::End => self.end(host, stream, Ending::End),
            ReadOutcome::Reset(code) => self.end(host, stream, Ending::Reset(code)),
            ReadOutcome::Wait => {}
        }
        false
    }

    fn end(&mut self, host: usize, stream: StreamId, ending: Ending) {
        self.oracle.ended(host, stream, ending);
        if matches!(ending, Ending::Reset(_)) {
            self.habits[host].get_mut(&stream).expect("the host knows it").left_bytes = 0;
        }
    }

    fn release(&mut self, host: usize, stream: StreamId) {
        self.session.streams(host).release(stream);
        self.oracle.released(host, stream);
        self.habits[host].remove(&stream);
    }

    /// Something that a host does now and then.
    fn act(&mut self) {
        let host = self.rng.below(2) as usize;
        if self.rng.below(4) == 0 && self.oracle.streams(host).count() < ENOUGH_STREAMS {
            let stream = self.session.streams(host).open().expect("there is room");
            return self.learn(host, stream);
        }
        let index = self.rng.below(self.habits[host].len().max(1) as u64) as usize;
        let Some((&stream, &habit)) = self.habits[host].iter().nth(index) else { return };
        match self.rng.below(20) {
            0 => self.finish(host, stream),
            1 if self.resets => {
                let code = ResetCode(2 + self.rng.below(250) as u8);
                self.session.streams(host).reset(stream, code);
                self.oracle.reset(host, stream, code);
                self.habits[host].get_mut(&stream).expect("the host knows it").left_bytes = 0;
            }
            2 if self.resets || self.oracle.is_done(host, stream) => self.release(host, stream),
            3..10 => drop(self.write(host, stream)),
            _ if habit.reads != Reads::AtTheEnd => {
                let most = 1 + self.rng.below(2 * PIECE_BYTES) as usize;
                self.read(host, stream, most);
            }
            _ => {}
        }
    }

    /// What the hosts do because something has changed.
    fn react(&mut self) {
        for host in 0..2 {
            while let Some(event) = self.session.streams(host).poll_event() {
                let (StreamEvent::Opened(stream) | StreamEvent::Readable(stream) | StreamEvent::Writable(stream)) =
                    event;
                if let StreamEvent::Opened(_) = event {
                    self.learn(host, stream);
                }
                let Some(&habit) = self.habits[host].get(&stream) else { continue };
                let writes = !matches!(event, StreamEvent::Readable(_)) && habit.writes_at_once;
                let reads = !matches!(event, StreamEvent::Writable(_)) && habit.reads == Reads::AtOnce;
                while writes && self.write(host, stream) {}
                while reads && self.read(host, stream, usize::MAX) {}
            }
        }
    }

    /// Writes and reads everything, and ends every stream.
    fn conclude(&mut self) {
        for host in 0..2 {
            for stream in self.habits[host].keys().copied().collect::<Vec<_>>() {
                while self.write(host, stream) {}
                if self.habits[host][&stream].left_bytes == 0 {
                    self.finish(host, stream);
                }
                while self.read(host, stream, usize::MAX) {}
            }
        }
    }

    fn run(mut self) {
        let mut next_us = 0.0;
        while self.session.now_us() < TROUBLE_US {
            self.session.step(next_us);
            self.react();
            if self.session.now_us() >= next_us {
                next_us += self.rng.exponential(2_000.0);
                self.act();
            }
        }
        while !self.oracle.is_over() {
            assert!(self.session.now_us() < TROUBLE_US + PATIENCE_US, "something waits for ever: {:?}", self.oracle);
            self.conclude();
            let until_us = self.session.now_us() + CONCLUDE_EVERY_US;
            while self.session.now_us() < until_us {
                self.session.step(until_us);
                self.react();
            }
        }
        self.oracle.check_over();
        for host in 0..2 {
            for stream in self.habits[host].keys().copied().collect::<Vec<_>>() {
                self.release(host, stream);
            }
            let streams = self.session.streams(host);
            assert_eq!(streams.count(), 0, "streams are left: {streams:?}");
        }
    }
}

#[test]
fn every_stream_delivers_its_bytes_over_any_rails() {
    for_seeds(15, |seed| Run::new(Rng::new(seed)).run());
}
