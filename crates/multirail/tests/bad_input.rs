//! What a peer can send that it must not: nobody panics, nobody else suffers, and the error says whose fault it is.

mod common;

use common::*;
use multirail::handshake::{self, PROTOCOL_VERSION, Purpose, SessionId};
use multirail::payload::VecSink;
use multirail::service::{self, Request, ServeConfig};
use multirail::session::{ListenConfig, Listener, WINDOW_BYTES};
use multirail::{Config, Error, Session, Token};
use multirail_proto::striping::Direction;
use multirail_proto::wire::{ChannelReport, Control, Frame, MAX_PACKET_BYTES, Report, packet};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

// ---- the handshake, byte by byte ----

const MAGIC: [u8; 8] = *b"mltirail";

/// The first packet, with what a later version might add behind it.
#[derive(Serialize)]
struct Hello {
    magic: [u8; 8],
    version: u16,
    purpose: Purpose,
    nonce: [u8; 32],
    more: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Challenge {
    magic: [u8; 8],
    version: u16,
    token_required: bool,
    nonce: [u8; 32],
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Verdict {
    Accepted { session: SessionId, hash: [u8; 32] },
    Refused(handshake::Refusal),
}

/// A good first packet.
fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    packet::encode(&(MAGIC, PROTOCOL_VERSION, Purpose::New, [7u8; 32]), &mut bytes);
    bytes
}

/// What a server with `token` makes of a client that sends `bytes` and then ends, and what it answered.
async fn door(token: Option<&Token>, bytes: &[u8]) -> (Result<Purpose, Error>, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let id: SessionId = packet::decode_body(&[1; 16]).unwrap();
    let admitted = bounded("a verdict", 8, handshake::accept(&mut server, token, |_| Ok(id))).await;
    drop(server);
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    (admitted.map(|(purpose, _)| purpose), answer)
}

/// What a client with `token` makes of a server that sends `challenge`, and then, after the client's proof, `verdict`.
async fn visit(token: Option<&Token>, challenge: &impl Serialize, verdict: Option<&Verdict>) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    packet::encode(challenge, &mut bytes);
    if let Some(verdict) = verdict {
        packet::encode(verdict, &mut bytes);
    }
    server.write_all(&bytes).await.unwrap();
    bounded("an end of the handshake", 8, handshake::connect(&mut client, token, Purpose::New)).await.unwrap_err()
}

fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

/// Bytes of other programs and of nobody: an error that names the peer and says what to look at, for every one of them.
#[test]
fn what_is_no_handshake_is_refused() {
    runtime().block_on(async {
        let mut rng = Rng(seed(1));
        let token = token();
        for round in 0..200 {
            let length = rng.below(400) as usize;
            let bytes = pattern(rng.next(), length);
            let (admitted, _) = door(Some(&token), &bytes).await;
            let error = admitted.expect_err(&format!("round {round}: {bytes:?} was let in"));
            assert!(matches!(error, Error::NotMultirail { .. }), "round {round}: {error:?}");
            assert_says(&error, &["the peer at 127.0.0.1:", "does not speak multirail", "check host and port"]);
        }
        for greeting in [&b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", &[0; 300]] {
            let (admitted, answer) = door(Some(&token), greeting).await;
            assert_says(&admitted.unwrap_err(), &["does not speak multirail"]);
            assert!(answer.is_empty(), "another program is told nothing");
        }
    });
}

/// What fuzzing has saved of handshake packets is read or refused, without a panic.
#[test]
fn saved_handshake_packets_never_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/handshake");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        handshake::decode_any(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "no input in {folder}");
}

/// The first packet cut anywhere: refused, without waiting for what does not come.
#[test]
fn a_truncated_handshake_is_refused() {
    runtime().block_on(async {
        let whole = hello();
        for length in 0..whole.len() {
            let (admitted, answer) = door(None, &whole[..length]).await;
            assert_says(&admitted.unwrap_err(), &["does not speak multirail", "eof"]);
            assert!(answer.is_empty(), "{length} bytes were answered");
        }
        let (admitted, answer) = door(None, &whole).await;
        assert!(admitted.is_err(), "no proof came");
        assert!(packet::decode::<Challenge>(&answer).unwrap().is_some(), "a whole first packet is answered");
    });
}

/// A length is refused as such, before its bytes are waited for: one more than a handshake packet may have, and 4 GiB less one.
#[test]
fn absurd_lengths_are_refused_at_once() {
    runtime().block_on(async {
        for length in [257u32, 65_537, u32::MAX] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            client.write_all(&length.to_le_bytes()).await.unwrap();
            // The client stays: were the length believed, this would wait for the body until it timed out.
            let id: SessionId = packet::decode_body(&[1; 16]).unwrap();
            let error = handshake::accept(&mut server, None, |_| Ok(id)).await.unwrap_err();
            assert!(matches!(error, Error::NotMultirail { .. }), "{length}: {error:?}");
            assert_says(&error, &[&format!("{length} bytes")]);
            assert!(!error.to_string().contains("longer than 65536") || length > 65_536, "wrong: {error}");
        }
        // The longest that is allowed is waited for, and is no handshake.
        let mut longest = 256u32.to_le_bytes().to_vec();
        longest.extend([0; 256]);
        let (admitted, _) = door(None, &longest).await;
        assert_says(&admitted.unwrap_err(), &["does not speak multirail"]);
    });
}

/// A recorded handshake is worth nothing: the server's nonce is another one.
#[test]
fn a_replayed_handshake_is_refused() {
    runtime().block_on(async {
        let token = token();
        let mut listener = listen(Config { token: Some(token.clone()), ..Config::default() }).await;
        let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(relay.local_addr().unwrap()).await.unwrap();
        let (mut near, _) = relay.accept().await.unwrap();
        let mut far = TcpStream::connect(listener.address()).await.unwrap();
        let mut recorded = Vec::new();
        let relaying = async {
            let (mut up, mut down) = ([0; 1024], [0; 1024]);
            loop {
                tokio::select! {
                    n = near.read(&mut up) => {
                        let n = n.unwrap();
                        recorded.extend_from_slice(&up[..n]);
                        far.write_all(&up[..n]).await.unwrap();
                    }
                    n = far.read(&mut down) => near.write_all(&down[..n.unwrap()]).await.unwrap(),
                }
            }
        };
        let good = handshake::connect(&mut client, Some(&token), Purpose::New);
        tokio::select! { () = relaying => unreachable!(), good = good => drop(good.expect("the recorded one is let in")) }
        drop(accept(&mut listener).await);

        let mut thief = TcpStream::connect(listener.address()).await.unwrap();
        thief.write_all(&recorded).await.unwrap();
        let mut answer = Vec::new();
        thief.read_to_end(&mut answer).await.unwrap();
        let (_, length) = packet::decode::<Challenge>(&answer).unwrap().expect("a challenge");
        let (verdict, _) = packet::decode::<Verdict>(&answer[length..]).unwrap().expect("a verdict");
        assert_eq!(verdict, Verdict::Refused(handshake::Refusal::Token));
        let more = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
        assert!(more.is_err(), "the thief got a session");
        // The same on the server's side: what it logs names the tokens.
        let (admitted, _) = door(Some(&token), &recorded).await;
        assert!(matches!(admitted, Err(Error::TokenWrong)), "{admitted:?}");
    });
}

/// Both sides say what is wrong with the token: it differs, it is missing, or the *server* has none or another one.
#[test]
fn tokens_that_differ_are_found_by_both_sides() {
    runtime().block_on(async {
        let (ours, other) = (token(), Token::new(b"the token of others"));
        for (server, client) in [(Some(&ours), Some(&other)), (None, Some(&ours)), (Some(&ours), None)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let id: SessionId = packet::decode_body(&[1; 16]).unwrap();
            let (connected, admitted) = tokio::join!(
                async {
                    let connected = handshake::connect(&mut near, client, Purpose::New).await;
                    drop(near);
                    connected
                },
                handshake::accept(&mut far, server, |_| panic!("nobody is asked to admit it: {id:?}"))
            );
            let (connected, admitted) = (connected.unwrap_err(), admitted.map(|_| ()).unwrap_err());
            if client.is_none() {
                assert!(matches!(connected, Error::TokenMissing), "{connected:?}");
                assert_says(&connected, &["the server wants a token", "--token-file"]);
            } else {
                assert!(matches!(connected, Error::TokenWrong), "{connected:?}");
                assert_says(&connected, &["tokens differ", "--token-file"]);
                assert!(matches!(admitted, Error::TokenWrong), "{admitted:?}");
            }
        }
        // A server that lets in whoever comes, so as to be sent things.
        let challenge = Challenge { magic: MAGIC, version: PROTOCOL_VERSION, token_required: true, nonce: [3; 32] };
        let session: SessionId = packet::decode_body(&[1; 16]).unwrap();
        let error = visit(Some(&ours), &challenge, Some(&Verdict::Accepted { session, hash: [0; 32] })).await;
        assert!(matches!(error, Error::TokenWrong), "{error:?}");
    });
}

/// Another version is named as such on both sides, also if its packets have fields that this one does not know.
#[test]
fn another_version_is_named_on_both_sides() {
    runtime().block_on(async {
        for more in [None, Some(5)] {
            let mut bytes = Vec::new();
            let purpose = Purpose::New;
            packet::encode(&Hello { magic: MAGIC, version: 9, purpose, nonce: [0; 32], more }, &mut bytes);
            let (admitted, answer) = door(None, &bytes).await;
            let error = admitted.unwrap_err();
            assert!(matches!(error, Error::Version { ours: PROTOCOL_VERSION, theirs: 9 }), "{error:?}");
            assert_says(&error, &["version 1", "the peer 9", "update"]);
            let (told, _) = packet::decode::<Challenge>(&answer).unwrap().expect("the client is told ours");
            assert_eq!(told.version, PROTOCOL_VERSION);

            let challenge = (MAGIC, 9u16, false, [0u8; 32], more);
            let error = visit(None, &challenge, None).await;
            assert!(matches!(error, Error::Version { ours: PROTOCOL_VERSION, theirs: 9 }), "{error:?}");
        }
        let error = visit(None, &(*b"anything", 1u16, false, [0u8; 32]), None).await;
        assert_says(&error, &["does not speak multirail", "another program"]);
    });
}

/// A name that was never given, and one that is over: refused, with the advice to connect again.
#[test]
fn an_unknown_session_cannot_be_joined() {
    runtime().block_on(async {
        let mut listener = listen(Config::default()).await;
        let mut raw = Raw::open(listener.address(), None).await;
        let known = raw.session;
        for purpose in ["data", "control"] {
            raw.session = packet::decode_body(&pattern(4, 16)).unwrap();
            let purpose = match purpose {
                "data" => Purpose::Data { session: raw.session, channel: 0, rail: 0, replaces: None },
                _ => Purpose::Control { session: raw.session },
            };
            let mut stream = TcpStream::connect(listener.address()).await.unwrap();
            let error = handshake::connect(&mut stream, None, purpose).await.unwrap_err();
            assert!(matches!(error, Error::SessionUnknown), "{error:?}");
            assert_says(&error, &["the server has ended this session", "connect again"]);
        }
        raw.session = known;
        raw.channel(0).await;
        drop(accept(&mut listener).await);
        // The keeper holds a session for one more tick at most.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let error = raw.try_channel(1, None).await.unwrap_err();
        assert!(matches!(error, Error::SessionUnknown), "{error:?}");
    });
}

/// A session takes channels up to its limit and says so beyond it; the session lives on, and a lost channel makes room.
#[test]
fn too_many_channels_are_refused_as_such() {
    runtime().block_on(async {
        let mut listener = listen(Config::default()).await;
        let raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let mut channels = Vec::new();
        let mut id = 0;
        let error = loop {
            match raw.try_channel(id, None).await {
                Ok(stream) => channels.push(stream),
                Err(error) => break error,
            }
            id += 1;
            assert!(id < 2000, "there is no limit");
        };
        println!("the {}th channel: {error}", id + 1);
        assert_eq!(id, 256);
        assert!(!matches!(error, Error::SessionUnknown), "the session is there, it is only full: {error:?}");
        assert_says(&error, &["as many as the server allows", "fewer channels"]);
        channels[3].write_all(&whole(0, b"still here")).await.unwrap();
        let mut buffer = [0; 32];
        let n = bounded("a message", 5, server.recv(&mut buffer)).await.unwrap();
        assert_eq!(&buffer[..n], b"still here");
        drop(channels.pop());
        bounded("room for one more", 5, async {
            while raw.try_channel(id, None).await.is_err() {
                id += 1;
                // A receiving call notices that the channel is gone.
                let _ = tokio::time::timeout(Duration::from_millis(20), server.recv(&mut buffer)).await;
            }
        })
        .await;
    });
}

/// Beyond this machine a token is needed, or the word of the user that it is not.
#[test]
fn a_server_without_token_stays_on_loopback() {
    runtime().block_on(async {
        let config = |address: &str, insecure_no_token, token| ListenConfig {
            address: address.parse().unwrap(),
            insecure_no_token,
            session: Config { token, ..Config::default() },
        };
        for open in ["0.0.0.0:0", "[::]:0"] {
            let error = Listener::bind(config(open, false, None)).await.unwrap_err();
            assert!(matches!(error, Error::OpenWithoutToken { .. }), "{error:?}");
            assert_says(&error, &["without a token", "--token-file", "127.0.0.1", "--insecure-no-token"]);
        }
        for allowed in [
            config("127.0.0.1:0", false, None),
            config("0.0.0.0:0", true, None),
            config("0.0.0.0:0", false, Some(token())),
        ] {
            Listener::bind(allowed).await.expect("this one may listen");
        }
    });
}

// ---- after the handshake ----

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
        on_control("no control packet", [&3u32.to_le_bytes()[..], &[0xee; 3]].concat(), &["does not parse"]),
        on_control("an empty one", vec![0; 4], &["does not parse"]),
    ]
}

/// Every violation ends the session with an error that names it, on both sides and for good; another session of the same
/// server goes on. Inputs just inside the limits are in the next test.
#[test]
fn violations_end_their_session_and_no_other() {
    runtime().block_on(async {
        let mut listener = listen(Config::default()).await;
        let address = listener.address();
        let (good, mut host) =
            tokio::join!(async { Session::connect(&address.to_string(), Config::default()).await.unwrap() }, async {
                accept(&mut listener).await
            });
        let mut good = good;
        for case in violations() {
            let name = case.name;
            let mut raw = Raw::open(address, None).await;
            let mut server = accept(&mut listener).await;
            let mut channel = raw.channel(0).await;
            let writing = async {
                // The session may end while this is on its way.
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

/// The same limits from inside, and things that look odd but are allowed: the messages arrive.
#[test]
fn what_is_just_allowed_is_taken() {
    runtime().block_on(async {
        let mut listener = listen(Config::default()).await;
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
        // Numbers of an impossible network: nothing may come of them but a wrong guess.
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

/// Frames of random kinds with random fields, a hundred peers at once: each session ends with an error of its peer, or waits; none
/// panics, and none keeps the good one from its work.
#[test]
fn random_frames_never_panic() {
    runtime().block_on(async {
        let first = seed(1000);
        let config = Config { give_up_after: Duration::from_millis(500), ..Config::default() };
        let mut listener = listen(config.clone()).await;
        let address = listener.address();
        for seed in first..first + 100 {
            let mut rng = Rng(seed);
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
            let raw = Raw::open(address, None).await;
            let mut server = accept(&mut listener).await;
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
            let (error, ()) = bounded(format!("seed {seed}: an end"), 10, async { tokio::join!(served, sent) }).await;
            assert!(
                matches!(error, Error::Protocol(_) | Error::AllRailsLost(_) | Error::MessageTooLarge { .. }),
                "seed {seed}: {error:?}"
            );
            drop(raw);
        }
    });
}

/// Bytes that were read together with a message and wait for the next call belong to messages that are not confirmed yet: if
/// the channel dies meanwhile, its successor brings them again.
#[test]
fn what_the_peer_was_told_has_arrived_is_not_lost_with_its_channel() {
    runtime().block_on(async {
        let mut listener = listen(Config::default()).await;
        let mut raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let mut channel = raw.channel(0).await;
        let both = [whole(0, b"first"), whole(1, b"second")].concat();
        channel.write_all(&both).await.unwrap();
        let mut buffer = [0; 32];
        let n = bounded("the first message", 5, server.recv(&mut buffer)).await.unwrap();
        assert_eq!(&buffer[..n], b"first");
        // The keeper reports what was read.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut confirmed = 0;
        while let Ok(Some(packet)) = tokio::time::timeout(Duration::from_millis(100), raw.hear()).await {
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
        tokio::time::sleep(Duration::from_millis(300)).await;
        let n = bounded("the second message, confirmed or sent again", 5, server.recv(&mut buffer)).await.unwrap();
        assert_eq!(&buffer[..n], b"second");
    });
}

/// A peer that says good-bye and is gone with a reset has said good-bye.
#[test]
fn a_close_before_a_reset_counts() {
    runtime().block_on(async {
        let mut listener = listen(Config { give_up_after: Duration::from_secs(2), ..Config::default() }).await;
        let mut raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let _channel = raw.channel(0).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        raw.say(&Control::Close { messages: 0 }).await;
        reset(raw.control);
        tokio::time::sleep(Duration::from_millis(350)).await;
        let end = bounded("an end", 10, server.recv(&mut [])).await.unwrap_err();
        assert!(matches!(end, Error::Closed), "{end:?}");
    });
}

/// An application that pauses in the middle of a message longer than any time-out of a dead rail: its channels stay, and
/// nothing is sent twice.
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

/// A peer that asks for much and reads nothing: sending to it waits, and ends when the peer goes.
#[test]
fn a_peer_that_stops_reading_is_waited_for_until_it_goes() {
    runtime().block_on(async {
        let mut listener = listen(Config { give_up_after: Duration::from_secs(1), ..Config::default() }).await;
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

// ---- a server in a process of its own ----

const CHILD: &str = "MULTIRAIL_TEST_CHILD";

/// The other process of the tests below.
#[test]
#[ignore = "the other process of tests in this file"]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (role, argument) = what.split_once(' ').unwrap_or((&what, ""));
    match role {
        "serve" => {
            let session = Config { token: Some(token()), give_up_after: Duration::from_secs(2), ..Config::default() };
            let listen = ListenConfig { address: "127.0.0.1:0".parse().unwrap(), insecure_no_token: false, session };
            let serving = service::serve(ServeConfig { listen, root: "/nonexistent".into() }, |address| {
                println!("\nlistening {address}");
                std::io::stdout().flush().unwrap();
            });
            runtime().block_on(serving).unwrap();
        }
        "send" => runtime().block_on(async {
            let mut session = Session::connect(argument, Config::default()).await.unwrap();
            let _ = session.send(&vec![7; 256 << 20]).await;
        }),
        other => panic!("no such role: {other}"),
    }
}

fn spawn_child(what: &str, max_files: Option<u64>) -> Child {
    let mut command = match max_files {
        None => Command::new(std::env::current_exe().unwrap()),
        Some(files) => {
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""))
                .arg(std::env::current_exe().unwrap());
            command
        }
    };
    let command = command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CHILD, what);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Ends the child with the test.
struct Served(Child, SocketAddr);

impl Served {
    fn start(max_files: Option<u64>) -> Self {
        let mut child = spawn_child("serve", max_files);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("listening ")?.parse().ok());
        Self(child, address.expect("the server tells where it listens"))
    }

    fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }

    /// Whether a client with the token is served: a message there and back.
    async fn is_served(&self) {
        let config = Config { token: Some(token()), ..Config::default() };
        let address = self.1.to_string();
        let connecting = Session::connect(&address, config);
        let mut session = bounded("a good client to be let in", 20, connecting).await.expect("let in");
        let echo = Request::Echo { message_bytes: 1000, rounds: 1, strategy: "adaptive".into(), fragment_bytes: 1 };
        let mut bytes = Vec::new();
        packet::encode(&echo, &mut bytes);
        session.send(&bytes[packet::PREFIX_BYTES..]).await.unwrap();
        let message = pattern(1, 1000);
        session.send(&message).await.unwrap();
        let mut back = vec![0; 1000];
        bounded("the echo", 10, session.recv(&mut back)).await.unwrap();
        assert_same(&back, &message, "an echo");
        session.close().await.unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thousand connections that never finish their handshake: each costs the server less than 16 KiB, a good client is served
/// beside them, and they are shown the door.
#[test]
fn a_thousand_half_open_connections_cost_little() {
    const CONNECTIONS: usize = 1000;
    allow_files(4096);
    let server = Served::start(Some(4096));
    runtime().block_on(async {
        server.is_served().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (before, files) = (server.rss_bytes(), server.open_files());
        let begun = Instant::now();
        let mut half_open = Vec::new();
        for number in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(server.1).await.unwrap();
            // Silent, or stuck in the first packet, or waiting where a proof is due.
            let hello = hello();
            let said = [&hello[..0], &hello[..3], &hello[..20], &hello[..]][number % 4];
            stream.write_all(said).await.unwrap();
            half_open.push(stream);
        }
        bounded("all of them to be accepted", 4, async {
            while server.open_files() < files + CONNECTIONS {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let each = (server.rss_bytes().saturating_sub(before)) / CONNECTIONS as u64;
        println!("{each} bytes a half-open connection, {CONNECTIONS} of them after {:?}", begun.elapsed());
        assert!(each < 16 << 10, "{each} bytes a connection");
        server.is_served().await;
        bounded("the door for all of them", 20, async {
            for mut stream in half_open {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
        })
        .await;
        println!("all shown the door after {:?}", begun.elapsed());
        server.is_served().await;
    });
}

/// A server whose files are used up by half-open connections shows the oldest of them the door: a good client is served.
#[test]
fn half_open_connections_do_not_use_up_a_servers_files() {
    const FILES: u64 = 100;
    let server = Served::start(Some(FILES));
    runtime().block_on(async {
        let mut half_open = Vec::new();
        for _ in 0..2 * FILES {
            half_open.push(TcpStream::connect(server.1).await.unwrap());
        }
        let begun = Instant::now();
        server.is_served().await;
        println!("a good client was served after {:?}", begun.elapsed());
        assert!(begun.elapsed() < handshake::TIMEOUT, "it had to wait until the others timed out");
    });
}

fn allow_files(count: u64) {
    // SAFETY: both calls get a valid rlimit.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(limit.rlim_cur.max(count));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// A sender that is killed in the middle of a message: the receiver says so after the time it was given, and others are served.
#[test]
fn a_peer_that_vanishes_in_mid_message_is_given_up() {
    runtime().block_on(async {
        let config = Config { give_up_after: Duration::from_secs(1), ..Config::default() };
        let mut listener = listen(config.clone()).await;
        let address = listener.address();
        let mut child = spawn_child(&format!("send {address}"), None);
        let mut server = accept(&mut listener).await;
        let watch = server.watch();
        let mut sink = VecSink::new(1 << 30);
        let killing = async {
            let received = || watch.rails().iter().map(|r| r.received_bytes).sum::<u64>();
            while received() < 1 << 20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            println!("killed after {} of {} bytes", received(), 256 << 20);
            Instant::now()
        };
        let (ended, killed) = bounded("an end", 30, async { tokio::join!(server.recv_into(&mut sink), killing) }).await;
        let error = ended.unwrap_err();
        println!("{:?} after the kill: {error}", killed.elapsed());
        assert!(matches!(error, Error::AllRailsLost(after) if after == Duration::from_secs(1)), "{error:?}");
        drop(server);
        let (good, mut host) =
            tokio::join!(async { Session::connect(&address.to_string(), config).await }, accept(&mut listener));
        bounded("a good client", 10, round_trip(&mut good.unwrap(), &mut host, 1, 10_000)).await;
    });
}
