//! What a peer can send that is no handshake, or not the right one: nobody gets in, nobody panics, and the error says whose fault it is.

mod common;

use common::*;
use multirail::handshake::{self, PROTOCOL_VERSION, Purpose, SessionId};
use multirail::session::{ListenConfig, Listener};
use multirail::{Config, Error, Token};
use multirail_proto::wire::packet;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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
