//! Invalid handshakes: the peer is refused without a panic, and the error names the fault.

mod common;

use common::*;
use multirail::handshake::raw::{self, Joined};
use multirail::handshake::{self, PROTOCOL_VERSION, Purpose, SessionId};
use multirail::{Config, Error, Identity, KnownHosts, Token};
use multirail_proto::wire::packet;
use multirail_testing::for_seeds;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The first packet of a server.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    magic: [u8; 8],
    version: u16,
    answer: Answer,
    nonce: [u8; 32],
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Open { plaintext: bool, fast_aes: bool, pake: Option<[u8; 32]> },
    Join,
    Refused(handshake::Refusal),
}

fn some_id() -> SessionId {
    packet::decode_body(&[1; 16]).unwrap()
}

fn with(token: Option<&Token>) -> Config {
    Config::new().token(token.cloned())
}

/// A connection and its other end.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// The result of a server with `token` for a client that sends `bytes` and ends, and the server's
/// answer.
async fn door(token: Option<&Token>, bytes: &[u8]) -> (Result<Purpose, Error>, Vec<u8>) {
    let (mut client, mut server) = connection().await;
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let config = with(token);
    let answering = raw::answer(&mut server, &config, |_, _| Ok(some_id()));
    let admitted = bounded("a verdict", 8, answering).await;
    drop(server);
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    (admitted, answer)
}

/// The result of a client with `token` for a server that sends `welcome` and ends.
async fn visit(token: Option<&Token>, welcome: &impl Serialize) -> Error {
    let (mut client, mut server) = connection().await;
    let mut bytes = Vec::new();
    packet::encode(welcome, &mut bytes);
    server.write_all(&bytes).await.unwrap();
    let config = with(token);
    let opening = async {
        let opened = raw::Session::open(&mut client, &config, Purpose::New).await;
        opened.map(drop).unwrap_err()
    };
    let ending = async {
        // What the client sends is read, so that the end is no reset.
        let _ = server.read(&mut [0; 4096]).await;
        server.shutdown().await.unwrap();
        server
    };
    bounded("an end of the handshake", 8, async { tokio::join!(opening, ending) }).await.0
}

/// A client and a server with these configurations.
async fn both(client: &Config, server: &Config) -> (Result<raw::Session, Error>, Result<Purpose, Error>) {
    let (mut near, mut far) = connection().await;
    let opening = async {
        let opened = raw::Session::open(&mut near, client, Purpose::New).await;
        drop(near);
        opened
    };
    let answering = async {
        let answered = raw::answer(&mut far, server, |_, _| Ok(some_id())).await;
        drop(far);
        answered
    };
    bounded("an end of the handshake", 8, async { tokio::join!(opening, answering) }).await
}

/// Bytes of other programs and random bytes: each gives an error that names the peer and the
/// reason.
#[test]
fn bytes_of_other_programs_are_refused() {
    let (runtime, token) = (runtime(), token());
    for_seeds(200, |seed| {
        let mut rng = Rng::new(seed);
        let bytes = pattern(rng.next_u64(), 1 + rng.below(400) as usize);
        let (admitted, _) = runtime.block_on(door(Some(&token), &bytes));
        let error = admitted.expect_err("random bytes are let in");
        assert!(matches!(error, Error::NotMultirail { .. }), "{error:?}");
        assert_says(&error, &["the peer at 127.0.0.1:", "does not speak multirail"]);
    });
    runtime.block_on(async {
        for greeting in [&b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", &[0; 300]] {
            let (admitted, answer) = door(Some(&token), greeting).await;
            assert_says(&admitted.unwrap_err(), &["does not speak multirail"]);
            assert!(answer.is_empty(), "another program is told nothing");
        }
        // A health check sends nothing.
        assert!(matches!(door(Some(&token), &[]).await.0, Err(Error::Closed)));
    });
}

/// The fuzzing corpus of handshake packets is parsed or refused, without a panic.
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

/// The first packet, truncated at any byte, is refused without waiting for the rest.
#[test]
fn a_truncated_handshake_is_refused() {
    runtime().block_on(async {
        let whole = hello();
        for length in 0..whole.len() {
            let (admitted, answer) = door(None, &whole[..length]).await;
            let error = admitted.unwrap_err();
            match length {
                0 => assert!(matches!(error, Error::Closed), "{error:?}"),
                _ => assert_says(&error, &["does not speak multirail", "eof"]),
            }
            assert!(answer.is_empty(), "{length} bytes were answered");
        }
        let (admitted, answer) = door(None, &whole).await;
        assert!(admitted.is_err(), "no key exchange came");
        assert!(packet::decode::<Welcome>(&answer).unwrap().is_some(), "a whole first packet is answered");
    });
}

/// A length above the limit is refused before its bytes arrive: one byte too many, and 4 GiB less
/// one.
#[test]
fn absurd_lengths_are_refused_at_once() {
    runtime().block_on(async {
        for length in [257u32, 65_537, u32::MAX] {
            let (mut client, mut server) = connection().await;
            client.write_all(&length.to_le_bytes()).await.unwrap();
            // The client stays connected: a server that accepted the length would wait for the body
            // until a time-out.
            let error = raw::answer(&mut server, &with(None), |_, _| Ok(some_id())).await.unwrap_err();
            assert!(matches!(error, Error::NotMultirail { .. }), "{length}: {error:?}");
            assert_says(&error, &[&format!("{length} bytes")]);
            assert!(!error.to_string().contains("longer than 65536") || length > 65_536, "wrong: {error}");
        }
        // The server waits for a packet of the longest allowed length, and then refuses it.
        let mut longest = 256u32.to_le_bytes().to_vec();
        longest.extend([0; 256]);
        let (admitted, _) = door(None, &longest).await;
        assert_says(&admitted.unwrap_err(), &["does not speak multirail"]);
    });
}

/// Passes bytes between a client and a server. `change` sees each piece and its direction.
async fn relay(mut client: TcpStream, mut server: TcpStream, mut change: impl FnMut(bool, &mut Vec<u8>)) {
    loop {
        let (mut up, mut down) = ([0; 4096], [0; 4096]);
        let (is_up, read) = tokio::select! {
            read = client.read(&mut up) => (true, read),
            read = server.read(&mut down) => (false, read),
        };
        let Ok(length @ 1..) = read else { return };
        let mut bytes = if is_up { up[..length].to_vec() } else { down[..length].to_vec() };
        change(is_up, &mut bytes);
        let to = if is_up { &mut server } else { &mut client };
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// A recorded first connection is refused.
#[test]
fn a_replayed_handshake_is_refused() {
    runtime().block_on(async {
        let config = Config::new().token(token());
        let mut listener = listen(config.clone()).await;
        let (mut client, near) = connection().await;
        let far = TcpStream::connect(listener.address()).await.unwrap();
        let mut recorded = Vec::new();
        let relaying = relay(near, far, |is_up, bytes| {
            if is_up {
                recorded.extend_from_slice(bytes);
            }
        });
        let good = raw::Session::open(&mut client, &config, Purpose::New);
        tokio::select! { () = relaying => unreachable!(), good = good => drop(good.expect("the recorded handshake is admitted")) }
        drop(accept(&mut listener).await);

        let mut thief = TcpStream::connect(listener.address()).await.unwrap();
        thief.write_all(&recorded).await.unwrap();
        let _ = thief.read_to_end(&mut Vec::new()).await;
        let more = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
        assert!(more.is_err(), "the thief got a session");
        let (admitted, _) = door(Some(&token()), &recorded).await;
        assert!(matches!(admitted, Err(Error::Handshake { .. })), "{admitted:?}");
    });
}

/// A recorded further connection is refused, since the server's nonce differs.
#[test]
fn a_replayed_channel_is_refused() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let raw = Raw::open(listener.address(), None).await;
        let server = accept(&mut listener).await;
        let (mut client, near) = connection().await;
        let far = TcpStream::connect(listener.address()).await.unwrap();
        let mut recorded = Vec::new();
        let relaying = relay(near, far, |is_up, bytes| {
            if is_up {
                recorded.extend_from_slice(bytes);
            }
        });
        let joined = Joined::Data { channel: 0, rail: 0, replaces: None };
        let good = async {
            let joined = raw.session.join(&mut client, joined).await;
            // Until the proof is recorded.
            tokio::time::sleep(Duration::from_millis(200)).await;
            joined
        };
        tokio::select! { () = relaying => unreachable!(), good = good => good.expect("the recorded channel is admitted") }
        let mut thief = TcpStream::connect(listener.address()).await.unwrap();
        thief.write_all(&recorded).await.unwrap();
        let mut answer = Vec::new();
        // The server ends the connection; were it a channel, it would stay open.
        let ended = tokio::time::timeout(Duration::from_secs(5), thief.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "the thief got a channel");
        drop(server);
    });
}

/// Any bit that counts and is flipped on the way, in either direction, ends the handshake of both.
#[test]
fn a_flipped_bit_ends_the_handshake() {
    let runtime = runtime();
    for_seeds(60, |seed| {
        let mut rng = Rng::new(seed);
        let (flip_up, flip_at, flip_bit) = (rng.below(2) == 0, rng.below(2000), rng.below(8));
        let token = (rng.below(2) == 0).then(token);
        let (client, server) = (with(token.as_ref()), with(token.as_ref()));
        runtime.block_on(async {
            let (mut near, proxy_near) = connection().await;
            let (proxy_far, mut far) = connection().await;
            let (mut passed, mut flipped, mut counts) = (0, false, true);
            let relaying = relay(proxy_near, proxy_far, |is_up, bytes| {
                if is_up == flip_up {
                    if let Some(at) = flip_at.checked_sub(passed).map(|at| at as usize).filter(|at| *at < bytes.len()) {
                        (flipped, counts) = (true, !may_be_version_of_record(bytes, at));
                        bytes[at] ^= 1 << flip_bit;
                    }
                    passed += bytes.len() as u64;
                }
            });
            let opening = async {
                let opened = raw::Session::open(&mut near, &client, Purpose::New).await;
                drop(near);
                opened.map(drop)
            };
            let answering = async {
                let answered = raw::answer(&mut far, &server, |_, _| Ok(some_id())).await;
                drop(far);
                answered
            };
            let (opened, answered, ()) =
                bounded("the end", 20, async { tokio::join!(opening, answering, relaying) }).await;
            // The server's verdict is the last word: where that is changed, only the client notices.
            if flipped && counts {
                assert!(opened.is_err() || answered.is_err(), "both went on");
                assert!(opened.is_err() || flip_up, "the client did not notice");
            } else if !flipped {
                opened.expect("nothing was changed");
            }
        });
    });
}

/// Whether the byte looks like one in the version of a TLS record's header, which means nothing in
/// TLS 1.3 (RFC 8446, section 5.1).
fn may_be_version_of_record(bytes: &[u8], at: usize) -> bool {
    let is_header = |start: Option<usize>| {
        let header = start.and_then(|start| bytes.get(start..start + 3));
        header.is_some_and(|header| matches!(header, [0x14 | 0x16 | 0x17, 3, 1 | 3]))
    };
    is_header(at.checked_sub(1)) || is_header(at.checked_sub(2))
}

/// Both sides report the problem with the token: it differs, it is missing, or the *server* has
/// none or another one.
#[test]
fn both_sides_detect_different_tokens() {
    runtime().block_on(async {
        let other = Token::new(b"the token of others");
        // The two are different users.
        let client = |token: Option<&Token>| with(token).identity(Identity::generate());
        let (opened, answered) = both(&client(Some(&other)), &with(Some(&token()))).await;
        let (opened, answered) = (opened.map(drop).unwrap_err(), answered.unwrap_err());
        assert!(matches!(opened, Error::TokenWrong), "{opened:?}");
        assert_says(&opened, &["the token differs"]);
        assert!(matches!(answered, Error::TokenWrong), "{answered:?}");

        let (opened, _) = both(&client(Some(&token())), &with(None)).await;
        let opened = opened.map(drop).unwrap_err();
        assert!(matches!(opened, Error::TokenUnknown), "{opened:?}");
        assert_says(&opened, &["the server has no token"]);

        let me = Identity::generate();
        let server = with(Some(&token()));
        let hosts = KnownHosts::default().with("the server", server.identity.public_key());
        let (opened, answered) = both(&Config::new().identity(me.clone()).known_hosts(hosts), &server).await;
        let (opened, answered) = (opened.map(drop).unwrap_err(), answered.unwrap_err());
        assert!(matches!(opened, Error::TokenMissing { key } if key == me.public_key()), "{opened:?}");
        assert_says(&opened, &["the server requires a token", "does not know this side's key"]);
        assert!(matches!(answered, Error::TokenMissing { key } if key == me.public_key()), "{answered:?}");
    });
}

/// Without a token, each side must know the other one's key.
#[test]
fn unknown_keys_are_refused_on_both_sides() {
    runtime().block_on(async {
        let (mine, theirs) = (Identity::generate(), Identity::generate());
        let client = |hosts: KnownHosts| Config::new().identity(mine.clone()).known_hosts(hosts);
        let server = Config::new().identity(theirs.clone());
        let open = async |client: &Config, server: &Config| {
            let (opened, answered) = both(client, server).await;
            (opened.map(drop), answered.map(drop))
        };
        let (opened, _) = open(&client(KnownHosts::default()), &server).await;
        assert!(matches!(opened, Err(Error::HostUnknown { ref host, key }) if host == "the server" && key == theirs.public_key()), "{opened:?}");

        let changed = KnownHosts::default().with("the server", mine.public_key());
        // This side's own key is always good; a third one is not.
        let third = KnownHosts::default().with("the server", Identity::generate().public_key());
        for hosts in [changed, third] {
            let (opened, _) = open(&client(hosts), &server).await;
            assert!(matches!(opened, Err(Error::HostChanged { .. })), "{opened:?}");
        }
        let known = KnownHosts::default().with("the server", theirs.public_key());
        let (opened, answered) = open(&client(known.clone()), &server).await;
        assert!(matches!(opened, Err(Error::KeyRefused { key }) if key == mine.public_key()), "{opened:?}");
        assert!(matches!(answered, Err(Error::KeyRefused { key }) if key == mine.public_key()), "{answered:?}");

        let keys = multirail::AuthorizedKeys::default().with(mine.public_key(), Default::default());
        let (opened, answered) = open(&client(known), &server.authorized_keys(keys)).await;
        opened.unwrap();
        answered.unwrap();
        // Two processes of one user.
        let same = Config::new().identity(mine.clone());
        let (opened, answered) = open(&same, &same).await;
        opened.unwrap();
        answered.unwrap();
    });
}

/// One side alone cannot give up encryption.
#[test]
fn plaintext_must_be_said_on_both_sides() {
    runtime().block_on(async {
        for ours in [true, false] {
            let (opened, answered) = both(&Config::new().plaintext(ours), &Config::new().plaintext(!ours)).await;
            let (opened, answered) = (opened.map(drop).unwrap_err(), answered.unwrap_err());
            assert!(matches!(opened, Error::PlaintextDiffers { ours: said } if said == ours), "{opened:?}");
            assert!(matches!(answered, Error::PlaintextDiffers { ours: said } if said != ours), "{answered:?}");
            assert_says(&opened, &["plaintext", "encryption", "both must want the same"]);
        }
        let (opened, answered) = both(&Config::new().plaintext(true), &Config::new().plaintext(true)).await;
        opened.unwrap();
        answered.unwrap();
    });
}

/// Both sides name another version as the reason, even if its packets have unknown fields.
#[test]
fn another_version_is_named_on_both_sides() {
    runtime().block_on(async {
        for more in [None, Some(5u64)] {
            let mut bytes = Vec::new();
            packet::encode(&(MAGIC, 9u16, [0u8; 32], more), &mut bytes);
            let (admitted, answer) = door(None, &bytes).await;
            let error = admitted.unwrap_err();
            assert!(matches!(error, Error::Version { ours: PROTOCOL_VERSION, theirs: 9 }), "{error:?}");
            assert_says(&error, &[&format!("version {PROTOCOL_VERSION}"), "the peer 9", "update"]);
            let (told, _) = packet::decode::<Welcome>(&answer).unwrap().expect("the client is told ours");
            assert_eq!(told.version, PROTOCOL_VERSION);

            let error = visit(None, &(MAGIC, 9u16, false, [0u8; 32], more)).await;
            assert!(matches!(error, Error::Version { ours: PROTOCOL_VERSION, theirs: 9 }), "{error:?}");
        }
        let error = visit(None, &(*b"anything", 1u16, false, [0u8; 32])).await;
        assert_says(&error, &["does not speak multirail", "another program"]);
        // A server that answers another question, and one that ends before the key exchange.
        let welcome = |answer| Welcome { magic: MAGIC, version: PROTOCOL_VERSION, answer, nonce: [0; 32] };
        let error = visit(None, &welcome(Answer::Join)).await;
        assert_says(&error, &["does not speak multirail", "another question"]);
        let error = visit(None, &welcome(Answer::Open { plaintext: false, fast_aes: true, pake: None })).await;
        assert_says(&error, &["the handshake with 127.0.0.1:", "failed"]);
    });
}

/// An unknown session and one that has ended are refused, with the advice to connect again.
#[test]
fn an_unknown_session_cannot_be_joined() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let raw = Raw::open(listener.address(), None).await;
        for joined in [Joined::Data { channel: 0, rail: 0, replaces: None }, Joined::Control] {
            let unknown = packet::decode_body(&pattern(4, 16)).unwrap();
            let mut stream = TcpStream::connect(listener.address()).await.unwrap();
            let error = raw.session.join_other(&mut stream, unknown, joined).await.unwrap_err();
            assert!(matches!(error, Error::SessionUnknown), "{error:?}");
            assert_says(&error, &["the server has ended this session", "connect again"]);
        }
        raw.channel(0).await;
        drop(accept(&mut listener).await);
        // Maintenance keeps a session for one more tick at most.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let error = raw.try_channel(1, None).await.unwrap_err();
        assert!(matches!(error, Error::SessionUnknown), "{error:?}");
    });
}

/// Who knows the id of a session, and even the token, cannot join it without its keys.
#[test]
fn a_session_cannot_be_joined_by_its_id() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let (raw, thief) = (Raw::open(listener.address(), None).await, Raw::open(listener.address(), None).await);
        let (_one, _two) = (accept(&mut listener).await, accept(&mut listener).await);
        for joined in [Joined::Data { channel: 0, rail: 0, replaces: None }, Joined::Control] {
            let mut stream = TcpStream::connect(listener.address()).await.unwrap();
            let error = thief.session.join_other(&mut stream, raw.session.id(), joined).await.unwrap_err();
            assert!(matches!(error, Error::Handshake { .. }), "{error:?}");
            assert_says(&error, &["does not know the keys of the session"]);
        }
    });
}

/// A session refuses channels beyond its limit, with that reason. The session continues, and a lost
/// channel makes room.
#[test]
fn channels_beyond_the_limit_are_refused() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
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
        assert_says(&error, &["as many channels as the server allows", "fewer channels"]);
        channels[3].write_all(&whole(0, b"still here")).await.unwrap();
        let mut buffer = [0; 32];
        let n = bounded("a message", 5, server.recv(&mut buffer)).await.unwrap();
        assert_eq!(&buffer[..n], b"still here");
        drop(channels.pop());
        bounded("room for one more", 5, async {
            while raw.try_channel(id, None).await.is_err() {
                id += 1;
                // A receiving call notices that the channel is lost.
                let _ = tokio::time::timeout(Duration::from_millis(20), server.recv(&mut buffer)).await;
            }
        })
        .await;
    });
}
