//! Random sequences of valid and hostile events: what fuzzing finds only after a long time.

use multirail_fuzz_checks as checks;
use multirail_proto::multicast::member::ControlItem;
use multirail_proto::multicast::{Message, PieceSet};
use multirail_proto::pipeline::header::{DataHeader, EdgeMessage, Header};
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;

const STEPS: u64 = 200;

/// A number that is small, or now and then any.
fn number(rng: &mut Rng, below: u64) -> u64 {
    if rng.below(30) == 0 { rng.next_u64() >> rng.below(64) } else { rng.below(below) }
}

fn list(rng: &mut Rng) -> Vec<u32> {
    (0..rng.below(5)).map(|_| number(rng, 12) as u32).collect()
}

fn message(rng: &mut Rng) -> Message {
    match rng.below(11) {
        0 => {
            let mut held = PieceSet::none(10);
            for piece in (0..10).filter(|_| rng.below(2) == 0) {
                held.insert(piece);
            }
            Message::Bitfield(if rng.below(10) == 0 { vec![0xff; rng.below(9) as usize] } else { held.to_bytes() })
        }
        1 => Message::Have(list(rng)),
        2..5 => Message::Request(list(rng)),
        5 => Message::Cancel(list(rng)),
        6 => Message::Fetching(list(rng)),
        7 => Message::Take(list(rng)),
        8 => Message::Watch(list(rng)),
        9 => Message::Spare(number(rng, 10) as u32),
        _ => [Message::Starved, Message::Complete, Message::Interested][rng.below(3) as usize].clone(),
    }
}

fn item(rng: &mut Rng) -> ControlItem {
    let transfer = number(rng, 2) as u32;
    match rng.below(10) {
        0 | 1 => ControlItem::Ready(transfer),
        2 => ControlItem::Complete(transfer),
        3 => [ControlItem::Alive, ControlItem::Ask][rng.below(2) as usize].clone(),
        _ => ControlItem::Node(transfer, message(rng)),
    }
}

#[test]
fn members_of_broadcasts_stay_within_their_rules() {
    for_seeds(300, |seed| {
        let rng = &mut Rng::new(seed);
        // Ten pieces.
        let mut bytes = vec![rng.below(256) as u8, 10];
        // Most peers are linked, and have told of the broadcast.
        for peer in 0..5 {
            bytes.extend([0, peer, 1, 0]);
        }
        bytes.extend([5, 0, 10, 1, 0]);
        for peer in 0..5 {
            let ready = postcard::to_allocvec(&ControlItem::Ready(0)).unwrap();
            bytes.extend([1, peer, 0, ready.len() as u8]);
            bytes.extend(ready);
        }
        for _ in 0..STEPS {
            if rng.below(10) == 0 {
                let clusters: Vec<u8> = (0..5).map(|_| rng.below(3) as u8).collect();
                bytes.extend([11, 0, 241, 5]);
                bytes.extend(clusters);
            }
            let kind = [0, 1, 1, 1, 5, 6, 6, 7, 7, 8, 9, 10, 11][rng.below(13) as usize];
            let argument = if rng.below(8) == 0 { rng.below(256) } else { rng.below(12) } as u8;
            let mut input = match kind {
                1 => (0..1 + rng.below(2)).flat_map(|_| postcard::to_allocvec(&item(rng)).unwrap()).collect(),
                _ => vec![0; rng.below(4) as usize],
            };
            input.truncate(255);
            bytes.extend([kind, rng.below(6) as u8, argument, input.len() as u8]);
            bytes.extend(input);
        }
        checks::member(&bytes);
    });
}

fn header(rng: &mut Rng) -> Header {
    let buffer = number(rng, 12);
    let message = match rng.below(10) {
        0..4 => EdgeMessage::Data(DataHeader {
            number: buffer,
            tag: 0,
            origin: number(rng, 4),
            outputs: number(rng, 3) as u16,
            replay_of: (rng.below(4) == 0).then(|| number(rng, 3) as u16),
        }),
        4 => EdgeMessage::End { aborted: rng.below(4) == 0 },
        5 | 6 => EdgeMessage::Started(buffer),
        7 => EdgeMessage::Done(buffer),
        8 => EdgeMessage::Query { origin: number(rng, 4), dead_copy: number(rng, 3) as u16 },
        _ => EdgeMessage::Answer {
            origin: number(rng, 4) | rng.below(2) << 48,
            arrived: number(rng, 3) as u16,
            outputs: number(rng, 3) as u16,
        },
    };
    Header { unit: 1 + u32::from(rng.below(20) == 0), message }
}

#[test]
fn copies_of_filters_stay_within_their_rules() {
    for_seeds(1000, |seed| {
        let rng = &mut Rng::new(seed);
        let mut bytes = vec![rng.below(256) as u8];
        for _ in 0..STEPS {
            let kind = [0, 0, 1, 1, 2, 3, 3, 3, 6, 7, 7, 8, 8, 9, 10, 11][rng.below(16) as usize];
            // Ends and losses are rare, since little happens after them.
            let kind = if kind >= 9 && rng.below(5) > 0 { 7 } else { kind };
            bytes.extend([kind, rng.below(256) as u8]);
            if kind <= 5 {
                bytes.extend(header(rng).encode());
            }
        }
        checks::copy(&bytes);
    });
}

/// A frame of a byte stream, now and then cut or with a changed bit.
fn stream_frame(rng: &mut Rng) -> Vec<u8> {
    let length = rng.below(100);
    let kind = [1, 1, 1, 1, 2, 3, rng.below(256) as u8][rng.below(7) as usize];
    let payload = if kind == 1 { length as usize } else { 0 };
    let mut frame = vec![kind, if kind == 1 { u8::from(rng.below(20) == 0) } else { 0 }];
    frame.extend((payload as u16).to_le_bytes());
    frame.extend(&number(rng, 6).to_le_bytes()[..6]);
    let last = if kind == 3 { 0 } else { rng.below(4) * length };
    frame.extend(&last.to_le_bytes()[..6]);
    frame.extend(vec![7; payload]);
    if rng.below(50) == 0 {
        let at = rng.below(frame.len() as u64) as usize;
        frame[at] ^= 1 << rng.below(8);
    }
    frame
}

#[test]
fn byte_streams_stay_within_their_rules() {
    for_seeds(300, |seed| {
        let rng = &mut Rng::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..STEPS {
            let kind = rng.below(10) as u8;
            match kind {
                0..=4 => {
                    let frame = stream_frame(rng);
                    bytes.extend([kind, frame.len() as u8]);
                    bytes.extend(frame);
                }
                _ => bytes.extend([kind, rng.below(256) as u8]),
            }
        }
        checks::streams(&bytes);
    });
}
