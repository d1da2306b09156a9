//! Authenticated clients that are idle: others find a place, or are told that the server is busy.

mod common;

use common::*;
use multirail::bench::{BENCH, BenchRequest};
use multirail::handshake::{self, raw};
use multirail::protocol::ProtocolName;
use multirail::request::{self, Request};
use multirail::router::{Answering, Next, ProtocolHandler, Router};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Error, Session};
use multirail_proto::wire::Frame;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The limit of a server of which nothing else is said.
const PLACES: usize = 256;

/// Starts a server in a thread of its own, which lasts as long as the process.
fn serve() -> SocketAddr {
    let (ready, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let listen = ListenConfig::new(([127, 0, 0, 1], 0), plaintext().token(token()));
        let serving = Server::new(listen, "/nonexistent".into()).serve(move |address| ready.send(address).unwrap());
        runtime().block_on(serving)
    });
    address.recv_timeout(Duration::from_secs(10)).expect("a server")
}

async fn connect(address: SocketAddr) -> Result<Session, Error> {
    bounded("an answer", 20, Session::connect(&address.to_string(), plaintext().token(token()))).await
}

/// Checks that a message makes a round trip.
async fn is_served(mut session: Session) {
    let echo = BenchRequest::Echo { message_bytes: 1000, rounds: 1, strategy: "adaptive".into(), fragment_bytes: 1 };
    request::send_request(&mut session, BENCH, &echo).await.unwrap();
    let message = pattern(1, 1000);
    session.send(&message).await.unwrap();
    let mut back = vec![0; 1000];
    bounded("the echo", 10, session.recv(&mut back)).await.unwrap();
    assert_same(&back, &message, "an echo");
    session.close().await.unwrap();
}

/// As many sessions as the server serves, none of which asks for anything: another client is
/// served, and the one that has been idle for longest is told why it is not.
#[test]
fn idle_sessions_make_room() {
    allow_files(4096);
    let address = serve();
    runtime().block_on(async {
        let mut idle = Vec::new();
        for _ in 0..PLACES {
            idle.push(Raw::open(address, Some(token())).await);
            if idle.len() == 1 {
                // Its thread is idle before those of the others, however busy the machine is.
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1100)).await;
        is_served(connect(address).await.expect("a place")).await;
        let reason = bounded("the end of the oldest", 5, idle[0].hear_abort()).await.expect("a reason");
        assert!(reason.contains("256 sessions") && reason.contains("idle"), "{reason}");
        let next = tokio::time::timeout(Duration::from_millis(200), idle[1].hear_abort()).await;
        assert!(next.is_err(), "the second oldest was ended as well: {next:?}");
    });
}

/// The same with connections that belong to no session, from another address.
#[test]
fn idle_connections_make_room() {
    allow_files(4096);
    let address = serve();
    runtime().block_on(async {
        let mut idle = Vec::new();
        for _ in 0..PLACES {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let purpose = handshake::Purpose::Connection { protocol: ProtocolName::new("probe") };
            raw::Session::open(&mut stream, &plaintext().token(token()), purpose).await.unwrap();
            idle.push(stream);
            if idle.len() == 1 {
                // Its thread is idle before those of the others, however busy the machine is.
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1100)).await;
        is_served(connect(address).await.expect("a place")).await;
        bounded("the end of the oldest", 5, idle[0].read_to_end(&mut Vec::new())).await.unwrap();
    });
}

/// As many sessions as the server serves, all within a request: another client is told that the
/// server is busy, and none of them is ended.
#[test]
fn a_busy_server_says_so() {
    allow_files(4096);
    let address = serve();
    runtime().block_on(async {
        let mut busy = Vec::new();
        for _ in 0..PLACES {
            let mut session = connect(address).await.expect("a place");
            let absorb = BenchRequest::Absorb { message_bytes: 10 };
            request::send_request(&mut session, BENCH, &absorb).await.unwrap();
            busy.push(session);
        }
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let error = connect(address).await.map(drop).expect_err("there is no place");
        assert_says(&error, &["the server is busy", "256 sessions"]);
        assert!(matches!(error, Error::Busy { sessions: 256 }), "{error:?}");
        for mut session in busy {
            session.send(&[7; 10]).await.unwrap();
            session.send(&[]).await.unwrap();
            bounded("a report", 10, session.recv(&mut [0; 1024])).await.unwrap();
            session.close().await.expect("it was served to its end");
        }
        bounded("a place that is free again", 10, async {
            while connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    });
}

const WAIT: ProtocolName = ProtocolName::new("wait");

/// Answers any request with an empty message.
struct Waits;

impl ProtocolHandler for Waits {
    fn answer<'a>(&'a self, mut session: Session, _: SocketAddr, _: Request) -> Answering<'a> {
        Box::pin(async move {
            session.send(&[]).await?;
            Ok(Next::Request(session))
        })
    }
}

/// A session that makes no request is ended with that reason, also if a part of one has come. One
/// that made a request may wait for as long as it wants with the next one.
#[test]
fn a_session_without_a_request_is_ended() {
    runtime().block_on(async {
        let within = Duration::from_millis(500);
        let listener = listen(plaintext()).await;
        let address = listener.address();
        let router = Router::new().register(WAIT, Arc::new(Waits)).first_request_within(within);
        tokio::spawn(router.serve(listener));
        let mut good = Session::connect(&address.to_string(), plaintext()).await.unwrap();
        request::send_request(&mut good, WAIT, &()).await.unwrap();
        good.recv(&mut []).await.unwrap();

        let too_long = frames(&[Frame::Open { message: 0, total_bytes: 1 << 40, confirm: true }]);
        for part in [&[][..], &too_long[..]] {
            let mut silent = Raw::open(address, None).await;
            let mut channel = silent.channel(0).await;
            channel.write_all(part).await.unwrap();
            let reason = bounded("an end", 10, silent.hear_abort()).await;
            // A message that is too long for a request ends the session at once.
            assert!(!part.is_empty() || reason.as_ref().is_some_and(|r| r.contains("no request came")), "{reason:?}");
        }
        let mut trickle = Raw::open(address, None).await;
        let mut channel = trickle.channel(0).await;
        channel.write_all(&whole(0, &[1; 20])[..20]).await.unwrap();
        let reason = bounded("an end", 10, trickle.hear_abort()).await.expect("a reason");
        assert!(reason.contains("no request came"), "{reason}");

        request::send_request(&mut good, WAIT, &()).await.expect("the session goes on");
        good.recv(&mut []).await.unwrap();
    });
}
