//! Many silent peers, and peers that disappear: other clients are served, and files and memory
//! suffice.

mod common;

use common::served::{self, Served, spawn_child};
use common::*;
use multirail::handshake::{Purpose, raw};
use multirail::payload::VecSink;
use multirail::{Config, Error, Session, handshake};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The other process of the tests below.
#[test]
#[ignore = "the other process of tests in this file"]
fn child() {
    served::child(|role, address| {
        assert_eq!(role, "send");
        runtime().block_on(async {
            let mut session = Session::connect(address, Config::new().token(token())).await.unwrap();
            let _ = session.send(&vec![7; 256 << 20]).await;
        });
    });
}

/// What a client sends before it has heard anything: its first packet, and the ClientHello of TLS.
async fn first_flight() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let config = plaintext().token(token());
    let mut sent = vec![0; 64 << 10];
    let length = tokio::select! {
        length = server.read(&mut sent) => length.unwrap(),
        opened = raw::Session::open(&mut client, &config, Purpose::New) => panic!("nothing answers: {opened:?}"),
    };
    sent.truncate(length);
    assert!(length > hello().len() + 1000, "with ML-KEM, a ClientHello has more than 1000 bytes, and not {length}");
    sent
}

/// `flight` with the longest ClientHello that a server reads, most of which is padding (RFC 7685).
fn longest(mut flight: Vec<u8>) -> Vec<u8> {
    const RECORD_BYTES: usize = 4096;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b));
    let record = 4 + number(&[flight[1], flight[0]]);
    let session_id = record + 43;
    let suites = session_id + 1 + usize::from(flight[session_id]);
    let extensions = suites + 2 + number(&flight[suites..suites + 2]) + 2;
    let padding = RECORD_BYTES - (flight.len() - record);
    flight.extend([0, 21]);
    flight.extend(u16::try_from(padding - 4).unwrap().to_be_bytes());
    flight.resize(record + RECORD_BYTES, 0);
    for at in [record + 3, record + 7, extensions] {
        let grown = u16::try_from(number(&flight[at..at + 2]) + padding).unwrap();
        flight[at..at + 2].copy_from_slice(&grown.to_be_bytes());
    }
    flight
}

/// A thousand connections that never finish their handshake. Each costs the server less than 4 KiB,
/// a valid client is served beside them, and they are disconnected.
#[test]
fn a_thousand_half_open_connections_cost_little() {
    // The client is silent, stops within the first packet, or sends no proof.
    let hello = hello();
    half_open_connections_cost_little(&[&hello[..0], &hello[..3], &hello[..20], &hello], 4 << 10);
}

/// The same for clients that stop after the first message of TLS, which the server has answered.
/// Each costs less than 24 KiB, however long the message is.
#[test]
fn a_thousand_unfinished_tls_handshakes_cost_little() {
    let flight = longest(runtime().block_on(first_flight()));
    half_open_connections_cost_little(&[&flight], 24 << 10);
}

fn half_open_connections_cost_little(said: &[&[u8]], limit: u64) {
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
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(said[number % said.len()]).await.unwrap();
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
        assert!(server.open_files() >= files + CONNECTIONS, "the server has ended some of them");
        assert!(each < limit, "{each} bytes a connection");
        server.is_served().await;
        bounded("the end of all of them", 20, async {
            for mut stream in half_open {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
        })
        .await;
        println!("all disconnected after {:?}", begun.elapsed());
        server.is_served().await;
    });
}

/// A server whose files are used up by half-open connections disconnects the oldest, so that a
/// valid client is served.
#[test]
fn half_open_connections_do_not_use_up_a_servers_files() {
    const FILES: u64 = 100;
    let server = Served::start(Some(FILES));
    runtime().block_on(async {
        let mut half_open = Vec::new();
        for _ in 0..2 * FILES {
            half_open.push(TcpStream::connect(server.address).await.unwrap());
        }
        let begun = Instant::now();
        server.is_served().await;
        println!("a good client was served after {:?}", begun.elapsed());
        assert!(begun.elapsed() < handshake::TIMEOUT, "it had to wait until the others timed out");
    });
}

/// A sender is killed within a message: the receiver reports it after the configured time, and
/// other clients are served.
#[test]
fn a_peer_that_disappears_within_a_message_is_given_up() {
    runtime().block_on(async {
        let config = Config::new().token(token()).give_up_after(Duration::from_secs(1));
        let mut listener = listen(config.clone()).await;
        let address = listener.address();
        let mut child = spawn_child(&format!("send {address}"), None, Stdio::null());
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
