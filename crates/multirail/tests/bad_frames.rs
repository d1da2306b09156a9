//! Protocol violations after the handshake: only the peer's session ends, with an error that names
//! the fault.

mod common;

use common::*;
use multirail::payload::VecSink;
use multirail::session::{Listener, WINDOW_BYTES};
use multirail::{Config, Error, Session};
use multirail_proto::striping::Direction;
use multirail_proto::wire::{ChannelReport, Control, Frame, MAX_PACKET_BYTES, Report, packet};
use multirail_testing::for_seeds;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

struct Case {
    name: &'static str,
    data: Vec<u8>,
    control: Vec<u8>,
    words: &'static [&'static str],
}

fn on_data(name: &'static str, data: Vec<u8>, words: &'static [&'static str]) -> Case {
    Case { name, data, control: Vec::new(), words }
}

fn on_control(name: &'static str, control: Vec<u8>, words: &'static [&'static str]) -> Case {
    Case { name, data: Vec::new(), control, words }
}

fn control(packet: &Control) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet::encode(packet, &mut bytes);
    bytes
}

fn with_payload(list: &[Frame], payload: usize) -> Vec<u8> {
    let mut bytes = frames(list);
    bytes.extend(vec![0; payload]);
    bytes
}

fn open(message: u32, total_bytes: u64) -> Frame {
    Frame::Open { message, total_bytes, confirm: false }
}

fn run(message: u32, offset: u64, length: u32) -> Frame {
    Frame::Run { message, offset, length }
}

fn start(direction: Direction, fragment_bytes: u32, offset: u64, total_bytes: u64) -> Frame {
    Frame::Start { message: 0, direction, fragment_bytes, offset, total_bytes, confirm: false }
}

fn position(channel: u32, position: u64) -> Control {
    Control::Report(Report { completed_below: 0, close_heard: false, channels: vec![row(channel, position, 0, 0)] })
}

fn row(channel: u32, position: u64, busy_bytes: u64, busy_us: u64) -> ChannelReport {
    ChannelReport { channel, position, busy_bytes, busy_us }
}

fn violations() -> Vec<Case> {
    let mut continued = with_payload(&[start(Direction::Increment, 10, 10, 15)], 5);
    continued.extend(frames(&[Frame::Continue]));
    let mut beyond_left = with_payload(&[start(Direction::Decrement, 10, 5, 15)], 10);
    beyond_left.extend(frames(&[Frame::Continue]));
    let mut ended = with_payload(&[start(Direction::Increment, 10, 0, 30)], 10);
    ended.extend(frames(&[Frame::End { message: 0 }, Frame::Continue]));
    let mut raw_start = frames(&[start(Direction::Increment, 10, 0, 30)]);
    raw_start[6..10].fill(0);
    let mut long_run = frames(&[run(0, 0, 0)]);
    long_run[6..10].copy_from_slice(&(1u32 << 31 | 1).to_le_bytes());
    let mut too_early = frames(&[open(1, WINDOW_BYTES * 4)]);
    too_early.extend(with_payload(&[run(1, 0, 3 * WINDOW_BYTES as u32)], 3 * WINDOW_BYTES as usize));
    let mut scattered = frames(&[open(0, 1 << 20)]);
    for byte in 0..1 << 19 {
        scattered.extend(with_payload(&[run(0, 2 * byte, 1)], 1));
    }
    vec![
        on_data("no frame", vec![0x77; 40], &["unknown frame kind 0x77"]),
        on_data("a zero", vec![0], &["unknown frame kind 0x00"]),
        on_data("beyond the message", frames(&[open(0, 100), run(0, 90, 11)]), &["a run up to 101", "100 bytes"]),
        on_data("not announced", frames(&[run(0, 0, 1)]), &["a run of message 0", "not announced"]),
        on_data("a later one not announced", frames(&[run(3, 0, 1)]), &["a run of message 3", "not announced"]),
        on_data("two lengths", frames(&[open(0, 100), open(0, 101)]), &["message 0", "two lengths"]),
        on_data("two lengths early", frames(&[open(2, 100), open(2, 101)]), &["message 2", "two lengths"]),
        on_data(
            "two lengths by start",
            frames(&[open(0, 100), start(Direction::Increment, 10, 0, 99)]),
            &["message 0", "two lengths"],
        ),
        on_data("continue alone", frames(&[Frame::Continue]), &["a fragment without a Start"]),
        on_data("continue after end", ended, &["a fragment without a Start"]),
        on_data("beyond the right end", continued, &["a fragment beyond the end"]),
        on_data("beyond the left end", beyond_left, &["a fragment beyond the end"]),
        on_data("fragments of nothing", raw_start, &["fragment of 0", "start frame", "out of bounds"]),
        on_data("a run too long", long_run, &["length of 2147483649", "run frame", "out of bounds"]),
        on_data("far ahead", frames(&[open(4097, 1)]), &["message 4097 while 0 is awaited"]),
        on_data("much too early", too_early, &["bytes of messages that are not yet due"]),
        on_data("scattered", scattered, &["pieces"]),
        on_control("confirms more than was sent", control(&position(0, 1 << 40)), &["it confirms", "of a channel"]),
        on_control(
            "confirms messages not sent",
            control(&Control::Report(Report { completed_below: 5, close_heard: false, channels: vec![] })),
            &["it confirms message 5", "0 were sent"],
        ),
        on_control(
            "control packet too long",
            (MAX_PACKET_BYTES as u32 + 1).to_le_bytes().to_vec(),
            &["65537 bytes", "too long"],
        ),
        on_control("4 GiB less one", vec![0xff; 8], &["4294967295 bytes", "too long"]),
        on_control("no control packet", [&3u32.to_le_bytes()[..], &[0xee; 3]].concat(), &["cannot be parsed"]),
        on_control("an empty one", vec![0; 4], &["cannot be parsed"]),
    ]
}

/// Every violation ends the session on both sides with an error that names it. Another session of
/// the same server continues. The next test has inputs just inside the limits.
#[test]
fn violations_end_only_their_session() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let address = listener.address();
        let (good, mut host) =
            tokio::join!(async { Session::connect(&address.to_string(), plaintext()).await.unwrap() }, async {
                accept(&mut listener).await
            });
        let mut good = good;
        for case in violations() {
            let name = case.name;
            let mut raw = Raw::open(address, None).await;
            let mut server = accept(&mut listener).await;
            let mut channel = raw.channel(0).await;
            let writing = async {
                // The session may end while this is in transit.
                let _ = channel.write_all(&case.data).await;
                let _ = raw.control.write_all(&case.control).await;
                raw.hear_abort().await
            };
            let mut sink = VecSink::new(16 << 20);
            let (told, ended) = tokio::join!(
                bounded(format!("{name}: an end that the peer is told"), 10, writing),
                bounded(format!("{name}: an error"), 10, server.recv_into(&mut sink)),
            );
            let error = ended.expect_err(name);
            println!("{name}: {error}");
            assert!(matches!(error, Error::Protocol(_)), "{name}: {error:?}");
            assert_says(&error, &["the peer broke the protocol"]);
            assert_says(&error, case.words);
            let told = told.unwrap_or_else(|| panic!("{name}: the peer was not told why"));
            assert!(case.words.iter().all(|w| told.contains(w)), "{name}: the peer was told {told:?}");
            for again in [server.recv(&mut []).await.err(), server.send(b"more").await.err()] {
                assert!(matches!(again, Some(Error::Protocol(_))), "{name}: later {again:?}");
            }
            bounded("the good session", 10, round_trip(&mut good, &mut host, 1, 100_000)).await;
        }
    });
}

/// Input just inside the limits, and unusual but valid input: the messages arrive.
#[test]
fn input_just_inside_the_limits_is_accepted() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let mut raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let mut channel = raw.channel(0).await;
        let mut bytes = frames(&[open(4096, 1), open(0, 100), open(0, 100), run(0, 100, 0), Frame::Pad { length: 0 }]);
        bytes.extend(frames(&[Frame::End { message: 77 }]));
        bytes.extend(with_payload(&[run(0, 90, 10)], 10));
        bytes.extend(with_payload(&[run(0, 0, 95)], 95));
        bytes.extend(with_payload(&[Frame::Pad { length: 9 }, run(0, 0, 0)], 0).into_iter().take(16));
        bytes.extend([1; 9]);
        bytes.extend(whole(1, b""));
        bytes.extend(whole(0, b"of the past"));
        bytes.extend(with_payload(
            &[Frame::Start {
                message: 2,
                direction: Direction::Decrement,
                fragment_bytes: 10,
                offset: 10,
                total_bytes: 15,
                confirm: true,
            }],
            5,
        ));
        bytes.extend(with_payload(&[Frame::Continue], 10));
        channel.write_all(&bytes).await.unwrap();
        // Measurements of an impossible network may only cause a wrong estimate.
        for (busy_bytes, busy_us) in
            [(1, 1), (0, 2_000_000), (u64::MAX, 1), (u64::MAX, u64::MAX), (0, u64::MAX), (1, 0)]
        {
            let row = row(0, 0, busy_bytes, busy_us);
            raw.say(&Control::Report(Report { completed_below: 0, close_heard: false, channels: vec![row; 50] })).await;
            server.send(&pattern(1, 5000)).await.unwrap();
        }
        raw.say(&Control::Ports(vec![])).await;
        raw.say(&position(12345, u64::MAX)).await;
        let mut buffer = [1; 200];
        for length in [100, 0, 15] {
            let n = bounded("a message", 5, server.recv(&mut buffer)).await.unwrap();
            assert_eq!(n, length);
        }
        raw.say(&Control::Close { messages: 3 }).await;
        let end = bounded("the end", 5, server.recv(&mut buffer)).await.unwrap_err();
        assert!(matches!(end, Error::Closed), "{end:?}");
    });
}

/// Frames of random kinds with random fields: each session ends with a protocol error of the peer,
/// and none panics.
#[test]
fn random_frames_never_panic() {
    let runtime = runtime();
    let config = plaintext().give_up_after(Duration::from_millis(500));
    let mut listener = runtime.block_on(listen(config));
    for_seeds(100, |seed| runtime.block_on(send_random_frames(&mut listener, seed)));
}

async fn send_random_frames(listener: &mut Listener, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::new();
    for _ in 0..1 + rng.below(30) {
        let small = |rng: &mut Rng| [0, 1, 2, 5, 100, u32::MAX][rng.below(6) as usize];
        let size = |rng: &mut Rng| 1 + [0u64, 9, 99, 1 << 16, (1 << 47) - 1][rng.below(5) as usize];
        let message = small(&mut rng) % 8;
        let frame = match rng.below(7) {
            0 => run(message, rng.below(120), small(&mut rng) % 130),
            1 => Frame::Whole { message_low: message as u16, length: 10, confirm: true },
            2 => open(message, size(&mut rng)),
            3 => Frame::Pad { length: rng.below(50) as u32 },
            4 => {
                let total_bytes = size(&mut rng);
                let direction = if rng.below(2) == 0 { Direction::Increment } else { Direction::Decrement };
                let offset = rng.below(total_bytes);
                let fragment_bytes = 1 + small(&mut rng) % 200;
                Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm: false }
            }
            5 => Frame::Continue,
            _ => Frame::End { message },
        };
        bytes.extend(frames(&[frame]));
        let payload = rng.below(130) as usize;
        bytes.extend(pattern(seed, payload * rng.below(2) as usize));
    }
    let raw = Raw::open(listener.address(), None).await;
    let mut server = accept(listener).await;
    let mut channel = raw.channel(0).await;
    let served = async {
        loop {
            let mut sink = VecSink::new(1 << 20);
            if let Err(error) = server.recv_into(&mut sink).await {
                return error;
            }
        }
    };
    let sent = async {
        let _ = channel.write_all(&bytes).await;
        let _ = channel.shutdown().await;
    };
    let (error, ()) = bounded("an end", 10, async { tokio::join!(served, sent) }).await;
    assert!(matches!(error, Error::Protocol(_) | Error::AllRailsLost(_) | Error::MessageTooLarge { .. }), "{error:?}");
    drop(raw);
}

/// Bytes that were read with a message and wait for the next call belong to unconfirmed messages.
/// If the channel dies before that call, its successor transfers them again.
#[test]
fn confirmed_bytes_survive_the_loss_of_their_channel() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let mut raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let mut channel = raw.channel(0).await;
        let both = [whole(0, b"first"), whole(1, b"second")].concat();
        channel.write_all(&both).await.unwrap();
        let mut buffer = [0; 32];
        let n = bounded("the first message", 5, server.recv(&mut buffer)).await.unwrap();
        assert_eq!(&buffer[..n], b"first");
        let mut confirmed = 0;
        while confirmed < whole(0, b"first").len() as u64 {
            let packet = bounded("a report of what was read", 10, raw.hear()).await.expect("the session goes on");
            if let Control::Report(report) = packet {
                confirmed =
                    report.channels.iter().filter(|c| c.channel == 0).map(|c| c.position).fold(confirmed, u64::max);
            }
        }
        reset(channel);
        let mut successor = raw.try_channel(1, Some(0)).await.unwrap();
        if confirmed < both.len() as u64 {
            successor.write_all(&whole(1, b"second")).await.unwrap();
        }
        let address = successor.local_addr().unwrap();
        let is_used = |server: &Session| server.rails().iter().any(|r| r.addresses.is_some_and(|(_, a)| a == address));
        bounded("the successor to be used", 10, async {
            while !is_used(&server) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let n = bounded("the second message, confirmed or sent again", 5, server.recv(&mut buffer)).await.unwrap();
        assert_eq!(&buffer[..n], b"second");
    });
}

/// A peer that closes the session and then resets its connection has closed it, even if the
/// maintenance task notices the reset first.
#[test]
fn a_close_before_a_reset_counts() {
    for waits_ms in [0, 350] {
        runtime().block_on(async {
            let mut listener = listen(plaintext()).await;
            let mut raw = Raw::open(listener.address(), None).await;
            let mut server = accept(&mut listener).await;
            let _channel = raw.channel(0).await;
            raw.say(&Control::Close { messages: 0 }).await;
            reset(raw.control);
            tokio::time::sleep(Duration::from_millis(waits_ms)).await;
            let end = bounded("an end", 10, server.recv(&mut [])).await.unwrap_err();
            assert!(matches!(end, Error::Closed), "after {waits_ms} ms: {end:?}");
        });
    }
}

/// An application pauses within a message for longer than any time-out of a dead rail. Its channels
/// stay, and no byte is sent twice.
#[test]
fn a_receiver_that_pauses_is_not_dead() {
    runtime().block_on(async {
        let (mut client, mut server, _listener) = pair(Config::default()).await;
        let message = pattern(1, 24 << 20);
        let connections = client.rails()[0].addresses;
        let sending = client.send(&message);
        let receiving = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let mut sink = VecSink::new(32 << 20);
            server.recv_into(&mut sink).await.map(|_| sink.bytes)
        };
        let (sent, received) = bounded("the message", 20, async { tokio::join!(sending, receiving) }).await;
        sent.unwrap();
        assert_same(&received.unwrap(), &message, "after a pause");
        assert!(connections.is_some());
        assert_eq!(client.rails()[0].addresses, connections, "a channel was taken for dead");
        assert_eq!(client.stats().resent_bytes, 0);
        assert_eq!(server.stats().duplicate_bytes, 0);
    });
}

/// A peer requests much and reads nothing: sending waits, and ends when the peer disconnects.
#[test]
fn sending_waits_for_a_peer_that_stops_reading_until_it_disconnects() {
    runtime().block_on(async {
        let mut listener = listen(plaintext().give_up_after(Duration::from_secs(1))).await;
        let raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let channel = raw.channel(0).await;
        let message = pattern(1, 16 << 20);
        let mut sending = std::pin::pin!(server.send(&message));
        let early = tokio::time::timeout(Duration::from_secs(4), &mut sending).await;
        assert!(early.is_err(), "the peer is there, and took nothing: {early:?}");
        drop((raw, channel));
        let error = bounded("an end", 10, sending).await.unwrap_err();
        assert!(matches!(error, Error::AllRailsLost(_)), "{error:?}");
        assert_says(&error, &["all rails to the peer have been down for 1s"]);
    });
}
