//! Byte streams of a session against an oracle: messages in any order, random calls on both sides.

use multirail_proto::rng::Rng;
use multirail_proto::session::Role;
use multirail_proto::streams::{
    INITIAL_WINDOW_BYTES, MAX_STREAMS, MAX_WINDOW_BYTES, ReadOutcome, ResetCode, StreamEvent, StreamId,
    StreamViolation, Streams, WriteOutcome,
};
use multirail_testing::for_seeds;
use std::collections::{BTreeMap, BTreeSet};

/// What a session copies into one message.
const MESSAGE_BYTES: usize = 64 << 10;

/// The byte at `offset` of what a side writes to a stream.
fn byte(stream: StreamId, side: usize, offset: u64) -> u8 {
    (stream.number().wrapping_mul(31) ^ offset.wrapping_mul(7) ^ (offset >> 8) ^ side as u64) as u8
}

/// What one side has done with one stream.
#[derive(Debug, Default, Clone, Copy)]
struct Half {
    written: u64,
    read: u64,
    finished: bool,
    read_end: bool,
    reset: bool,
}

/// Two sides, what is under way between them, and what each has done.
struct Pair {
    sides: [Streams; 2],
    halves: [BTreeMap<StreamId, Half>; 2],
    under_way: [Vec<Vec<u8>>; 2],
}

impl Pair {
    fn new() -> Self {
        Self {
            sides: [Streams::new(Role::Dialler), Streams::new(Role::Listener)],
            halves: Default::default(),
            under_way: Default::default(),
        }
    }

    fn open(&mut self, side: usize) -> Option<StreamId> {
        let stream = self.sides[side].open()?;
        assert!(self.halves[side].insert(stream, Half::default()).is_none(), "a number is used twice");
        Some(stream)
    }

    fn any(&self, side: usize, rng: &mut Rng) -> Option<StreamId> {
        let index = rng.below(self.halves[side].len() as u64) as usize;
        self.halves[side].keys().nth(index).copied()
    }

    fn write(&mut self, side: usize, stream: StreamId, count: usize) {
        let half = self.halves[side].get_mut(&stream).expect("it is known");
        let bytes: Vec<u8> = (half.written..half.written + count as u64).map(|at| byte(stream, side, at)).collect();
        match self.sides[side].write(stream, &bytes) {
            WriteOutcome::Bytes(taken) => half.written += taken as u64,
            WriteOutcome::Ended => assert!(half.finished),
            WriteOutcome::Reset(_) => half.reset = true,
            WriteOutcome::Wait => {}
        }
    }

    fn finish(&mut self, side: usize, stream: StreamId) {
        self.sides[side].finish(stream);
        let half = self.halves[side].get_mut(&stream).expect("it is known");
        half.finished |= !half.reset;
    }

    fn reset(&mut self, side: usize, stream: StreamId) {
        self.sides[side].reset(stream, ResetCode(7));
        self.halves[side].get_mut(&stream).expect("it is known").reset = true;
    }

    fn read(&mut self, side: usize, stream: StreamId, most: usize) -> bool {
        let half = self.halves[side].get_mut(&stream).expect("it is known");
        match self.sides[side].read(stream) {
            ReadOutcome::Bytes(bytes) => {
                let count = bytes.len().min(most);
                for (at, read) in (half.read..).zip(&bytes[..count]) {
                    assert_eq!(*read, byte(stream, 1 - side, at), "stream {stream} at {at}");
                }
                half.read += count as u64;
                self.sides[side].consume(stream, count);
                return true;
            }
            ReadOutcome::End => half.read_end = true,
            ReadOutcome::Reset(_) => half.reset = true,
            ReadOutcome::Wait => {}
        }
        false
    }

    /// Makes at most one message.
    fn send(&mut self, side: usize, most_bytes: usize) -> bool {
        let mut message = Vec::new();
        let is_due = self.sides[side].is_due();
        let made = self.sides[side].next_message(&mut message, most_bytes);
        assert!(is_due || !made, "is_due tells whether there is a message");
        assert!(message.len() <= most_bytes);
        if made {
            self.under_way[side].push(message);
        }
        made
    }

    fn deliver(&mut self, side: usize, index: usize) {
        let message = self.under_way[side].swap_remove(index);
        self.sides[1 - side].handle_message(&message).expect("both sides keep the protocol");
        self.learn();
    }

    fn learn(&mut self) {
        for (side, halves) in self.sides.iter_mut().zip(&mut self.halves) {
            while let Some(event) = side.poll_event() {
                if let StreamEvent::Opened(stream) = event {
                    assert!(halves.insert(stream, Half::default()).is_none(), "opened twice");
                }
            }
        }
    }

    /// Ends every stream, delivers everything, and compares.
    fn drain(mut self) {
        for side in 0..2 {
            for stream in self.halves[side].keys().copied().collect::<Vec<_>>() {
                self.finish(side, stream);
            }
        }
        for round in 0.. {
            assert!(round < 100_000, "something waits for ever");
            let mut progress = false;
            for side in 0..2 {
                while self.send(side, MESSAGE_BYTES) {
                    progress = true;
                }
                while !self.under_way[side].is_empty() {
                    self.deliver(side, self.under_way[side].len() - 1);
                }
            }
            for side in 0..2 {
                // Streams of which this side has learned just now.
                let unfinished = self.halves[side].iter().filter(|(_, half)| !half.finished && !half.reset);
                for stream in unfinished.map(|(stream, _)| *stream).collect::<Vec<_>>() {
                    self.finish(side, stream);
                    progress = true;
                }
                for stream in self.halves[side].keys().copied().collect::<Vec<_>>() {
                    progress |= self.read(side, stream, 1 << 20);
                }
            }
            if !progress {
                break;
            }
        }
        let streams: BTreeSet<StreamId> = self.halves.iter().flat_map(BTreeMap::keys).copied().collect();
        for stream in streams {
            for side in 0..2 {
                let half = self.halves[side].get(&stream).expect("both know it");
                let other = self.halves[1 - side].get(&stream).expect("both know it");
                if half.reset || other.reset {
                    assert!(half.reset && other.reset, "stream {stream} is over on one side only");
                } else {
                    assert!(half.read_end && half.read == other.written, "stream {stream}: {half:?} {other:?}");
                }
            }
            self.sides.iter_mut().for_each(|side| side.release(stream));
        }
        for side in &mut self.sides {
            assert_eq!((side.count(), side.is_due()), (0, false), "something is left: {side:?}");
        }
    }
}

#[test]
fn every_byte_arrives_once_and_in_its_place() {
    for_seeds(20, |seed| {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new();
        let resets = rng.below(2) == 0;
        let most_under_way = 1 + rng.below(64) as usize;
        for _ in 0..3000 {
            let side = rng.below(2) as usize;
            let stream = pair.any(side, &mut rng);
            match (rng.below(12), stream) {
                (0, _) if pair.halves[side].len() < 40 => {
                    if let Some(stream) = pair.open(side) {
                        // The peer learns only of streams with something in them.
                        pair.write(side, stream, 1 + rng.below(100) as usize);
                    }
                }
                (1..4, Some(stream)) => pair.write(side, stream, rng.below(30_000) as usize),
                (4, Some(stream)) if rng.below(10) == 0 => pair.finish(side, stream),
                (5, Some(stream)) if resets && rng.below(20) == 0 => pair.reset(side, stream),
                (6 | 7, Some(stream)) => {
                    pair.read(side, stream, 1 + rng.below(40_000) as usize);
                }
                (8 | 9, _) if pair.under_way[side].len() < most_under_way => {
                    pair.send(side, 64 + rng.below(MESSAGE_BYTES as u64 - 63) as usize);
                }
                (10 | 11, _) if !pair.under_way[side].is_empty() => {
                    let index = rng.below(pair.under_way[side].len() as u64) as usize;
                    pair.deliver(side, index);
                }
                _ => {}
            }
        }
        pair.drain();
    });
}

#[test]
fn a_short_transfer_overtakes_long_ones() {
    let mut pair = Pair::new();
    let long: Vec<StreamId> = (0..3).filter_map(|_| pair.open(0)).collect();
    for stream in &long {
        pair.write(0, *stream, 100_000);
    }
    // Each long one has had its first turn.
    assert!(pair.send(0, MESSAGE_BYTES));
    let short = pair.open(0).expect("there is room");
    pair.write(0, short, 1024);
    pair.send(0, 2048);
    pair.deliver(0, 1);
    pair.read(1, short, 4096);
    assert_eq!(pair.halves[1][&short].read, 1024);
}

#[test]
fn long_transfers_get_equal_shares() {
    let mut pair = Pair::new();
    let streams: Vec<StreamId> = (0..5).filter_map(|_| pair.open(0)).collect();
    for _ in 0..100 {
        streams.iter().for_each(|stream| pair.write(0, *stream, 60_000));
        pair.send(0, 10_000);
        pair.deliver(0, 0);
        streams.iter().for_each(|stream| {
            if pair.halves[1].contains_key(stream) {
                pair.read(1, *stream, 1 << 20);
            }
        });
        pair.send(1, 10_000);
        (0..pair.under_way[1].len()).rev().for_each(|index| pair.deliver(1, index));
    }
    let read: Vec<u64> = streams.iter().map(|stream| pair.halves[1][stream].read).collect();
    let (least, most) = (read.iter().min().expect("five"), read.iter().max().expect("five"));
    assert!(most - least <= 2 * (16 << 10), "{read:?}");
}

#[test]
fn a_stream_that_is_not_read_holds_up_only_itself() {
    let mut pair = Pair::new();
    let (unread, other) = (pair.open(0).expect("room"), pair.open(0).expect("room"));
    for _ in 0..100 {
        pair.write(0, unread, 60_000);
        pair.write(0, other, 10_000);
        while pair.send(0, MESSAGE_BYTES) {
            pair.deliver(0, 0);
        }
        pair.read(1, other, 1 << 20);
        while pair.send(1, MESSAGE_BYTES) {
            pair.deliver(1, 0);
        }
    }
    assert_eq!(pair.halves[1][&other].read, 1_000_000);
    let mut held = 0;
    while pair.read(1, unread, 1000) {
        held += 1;
    }
    assert_eq!(pair.halves[1][&unread].read, INITIAL_WINDOW_BYTES, "{held} reads");
}

/// Moves everything that both sides can send now; returns how many bytes the stream's writer was rid of.
fn exchange(pair: &mut Pair, stream: StreamId) -> u64 {
    let before = pair.halves[0][&stream].written;
    loop {
        let written = pair.halves[0][&stream].written;
        pair.write(0, stream, 60_000);
        let sent = pair.send(0, MESSAGE_BYTES) | pair.send(1, MESSAGE_BYTES);
        if !sent && pair.halves[0][&stream].written == written {
            return written - before;
        }
        for side in 0..2 {
            while !pair.under_way[side].is_empty() {
                pair.deliver(side, 0);
            }
        }
    }
}

#[test]
fn the_window_grows_for_a_fast_reader_and_not_for_a_slow_one() {
    // Everything that has arrived is read, and only then does the sender hear of it.
    let mut pair = Pair::new();
    let fast = pair.open(0).expect("room");
    let mut most = 0;
    for _ in 0..20 {
        most = most.max(exchange(&mut pair, fast));
        while pair.read(1, fast, 20_000) {}
    }
    // Half of the window may be granted again before the burst, the rest only after it.
    assert!(most >= MAX_WINDOW_BYTES / 2, "{most}");
    // The sender hears of each read at once, and sends what the reader then has to read.
    let mut pair = Pair::new();
    let slow = pair.open(0).expect("room");
    exchange(&mut pair, slow);
    for _ in 0..2_000 {
        assert!(pair.read(1, slow, 20_000));
        let burst = exchange(&mut pair, slow);
        assert!(burst <= INITIAL_WINDOW_BYTES, "{burst}");
    }
}

#[test]
fn the_window_grows_where_limits_come_late() {
    // What was told and sent in one round arrives in the next one. The reader reads it at once.
    let mut pair = Pair::new();
    let stream = pair.open(0).expect("room");
    let mut read = Vec::new();
    for _ in 0..20 {
        let messages = [0, 1].map(|side| std::mem::take(&mut pair.under_way[side]));
        for (side, messages) in messages.into_iter().enumerate() {
            for message in messages {
                pair.under_way[side].insert(0, message);
                pair.deliver(side, 0);
                while side == 0 && pair.read(1, stream, 20_000) {}
            }
        }
        for side in 0..2 {
            loop {
                if side == 0 {
                    pair.write(0, stream, 60_000);
                }
                if !pair.send(side, MESSAGE_BYTES) {
                    break;
                }
            }
        }
        read.extend(pair.halves[1].get(&stream).map(|half| half.read));
    }
    let last_round = read[read.len() - 1] - read[read.len() - 2];
    assert!(last_round >= MAX_WINDOW_BYTES / 2, "{read:?}");
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut pair = Pair::new();
    for _ in 0..MAX_STREAMS {
        let stream = pair.open(0).expect("within the limit");
        pair.write(0, stream, 1);
        pair.send(0, MESSAGE_BYTES);
        pair.deliver(0, 0);
    }
    assert_eq!(pair.open(0), None, "this side keeps to the limit");
    // The first one is over for the opener, and not for the peer's application.
    let first = *pair.halves[0].keys().next().expect("many");
    pair.sides[0].reset(first, ResetCode::DROPPED);
    pair.sides[0].release(first);
    let more = pair.open(0).expect("there is room again");
    pair.write(0, more, 1);
    pair.send(0, MESSAGE_BYTES);
    let mut side = Streams::new(Role::Listener);
    std::mem::swap(&mut side, &mut pair.sides[1]);
    side.handle_message(&pair.under_way[0].pop().expect("one")).expect("it is no violation");
    let mut answer = Vec::new();
    assert!(side.next_message(&mut answer, MESSAGE_BYTES));
    pair.sides[0].handle_message(&answer).expect("valid");
    assert_eq!(pair.sides[0].write(more, &[1]), WriteOutcome::Reset(ResetCode::TOO_MANY));
}

/// A DATA frame as a lying peer would write it.
fn data(stream: u64, offset: u64, length: u16, is_end: bool) -> Vec<u8> {
    let mut frame = vec![1, u8::from(is_end)];
    frame.extend(length.to_le_bytes());
    frame.extend(&stream.to_le_bytes()[..6]);
    frame.extend(&offset.to_le_bytes()[..6]);
    frame.extend(vec![7; length.into()]);
    frame
}

#[test]
fn a_lying_peer_is_named() {
    let violation = |frames: &[Vec<u8>]| {
        let mut side = Streams::new(Role::Listener);
        frames.iter().find_map(|frame| side.handle_message(frame).err())
    };
    let limit = INITIAL_WINDOW_BYTES;
    let just_fits = data(0, limit - 10, 10, false);
    assert_eq!(violation(std::slice::from_ref(&just_fits)), None);
    assert!(matches!(violation(&[data(0, limit - 10, 11, false)]), Some(StreamViolation::BeyondLimit { .. })));
    assert!(matches!(violation(&[data(0, 0, 9, false), data(0, 8, 1, false)]), Some(StreamViolation::Twice { .. })));
    assert!(matches!(violation(&[just_fits.clone(), just_fits]), Some(StreamViolation::Twice { .. })));
    assert!(matches!(violation(&[data(0, 20, 9, false), data(0, 10, 11, false)]), Some(StreamViolation::Twice { .. })));
    assert_eq!(violation(&[data(0, 20, 9, false), data(0, 10, 10, false)]), None);
    assert!(matches!(violation(&[data(0, 0, 9, true), data(0, 9, 1, false)]), Some(StreamViolation::BehindEnd(_))));
    assert!(matches!(violation(&[data(0, 0, 9, false), data(0, 0, 8, true)]), Some(StreamViolation::BehindEnd(_))));
    assert!(matches!(violation(&[data(1, 0, 1, false)]), Some(StreamViolation::NotOpen(_))));
    assert!(matches!(violation(&[data(1 << 40, 0, 1, false)]), Some(StreamViolation::TooFarAhead(_))));
    assert!(matches!(violation(&[vec![9; 16]]), Some(StreamViolation::UnknownKind { kind: 9 })));
    assert!(matches!(violation(&[vec![1; 15]]), Some(StreamViolation::Cut)));
}

#[test]
fn a_peer_that_opens_streams_without_end_costs_no_memory() {
    let mut side = Streams::new(Role::Listener);
    // Each frame opens all streams up to its own.
    let step = 4 * MAX_STREAMS as u64;
    let violation = (1..100).find_map(|frame| side.handle_message(&data(frame * step, 0, 0, false)).err());
    assert_eq!(violation, Some(StreamViolation::TooManyRefused));
    assert!(side.count() <= MAX_STREAMS);
}

#[test]
fn a_side_that_refuses_streams_keeps_none() {
    let mut side = Streams::new(Role::Listener);
    side.refuse_new();
    side.handle_message(&data(0, 0, 100, false)).expect("it is no violation");
    assert_eq!((side.count(), side.poll_event()), (0, None));
    let mut answer = Vec::new();
    assert!(side.next_message(&mut answer, MESSAGE_BYTES));
    let mut peer = Streams::new(Role::Dialler);
    let stream = peer.open().expect("room");
    peer.handle_message(&answer).expect("valid");
    assert_eq!(peer.write(stream, b"x"), WriteOutcome::Reset(ResetCode::TOO_MANY));
}

#[test]
fn what_a_peer_sends_before_its_turn_is_limited() {
    let mut side = Streams::new(Role::Listener);
    let mut pieces = 0;
    let violation = 'all: loop {
        for stream in 0.. {
            for offset in (1..INITIAL_WINDOW_BYTES).step_by(2) {
                if let Err(violation) = side.handle_message(&data(2 * stream, offset, 1, false)) {
                    break 'all violation;
                }
                pieces += 1;
            }
        }
    };
    assert_eq!(violation, StreamViolation::TooMuchEarly);
    assert!(pieces < 400_000, "{pieces} pieces of about 100 bytes");
}

#[test]
fn any_bytes_are_handled_without_panic() {
    for_seeds(200, |seed| {
        let mut rng = Rng::new(seed);
        let mut side = Streams::new(Role::Dialler);
        let own = side.open().expect("room");
        side.write(own, b"something");
        for _ in 0..200 {
            let mut frame = data(rng.below(8), rng.below(70_000), rng.below(200) as u16, rng.below(4) == 0);
            let flips = rng.below(3);
            for _ in 0..flips {
                let at = rng.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << rng.below(8);
            }
            if side.handle_message(&frame).is_err() {
                return;
            }
            let stream = side.poll_event().and_then(|event| match event {
                StreamEvent::Opened(stream) | StreamEvent::Readable(stream) => Some(stream),
                StreamEvent::Writable(_) => None,
            });
            if let Some(stream) = stream {
                if let ReadOutcome::Bytes(bytes) = side.read(stream) {
                    let count = bytes.len();
                    side.consume(stream, count);
                }
                side.release(stream);
            }
            side.next_message(&mut Vec::new(), 1000);
        }
    });
}
