//! Many byte streams in one session over loopback: all of them get their own bytes, at the same time
//! and on any number of channels, and they end as documented.

mod common;

use common::{bounded, pair, pattern, runtime};
use multirail::streams::{ResetCode, SessionStream, Streams};
use multirail::{Config, Error, Session};
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;
use std::io::ErrorKind;
use std::num::NonZero;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

async fn sides(channels: u32) -> (Streams, Streams) {
    let config = Config::new().channels(NonZero::new(channels).unwrap());
    let (client, server, _listener) = pair(config).await;
    (client.into_streams(), server.into_streams())
}

/// Writes `number` and then its pattern, in pieces of random lengths; reads the peer's to the end.
async fn exchange(stream: SessionStream, number: u64, bytes: usize, mut rng: Rng) {
    let (mut read, mut write) = tokio::io::split(stream);
    let sent = pattern(number, bytes);
    let writing = async {
        write.write_u64_le(number).await.unwrap();
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(1 + rng.below(100_000) as usize));
            write.write_all(piece).await.unwrap();
            rest = after;
        }
        write.shutdown().await.unwrap();
    };
    let reading = async {
        let mut got = Vec::new();
        read.read_to_end(&mut got).await.unwrap();
        got
    };
    let ((), got) = tokio::join!(writing, reading);
    assert!(got == sent, "stream {number}: {} bytes of {}", got.len(), sent.len());
}

/// Sends back what it reads, after the number.
async fn echo(mut stream: SessionStream) {
    stream.read_u64_le().await.unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::io::copy(&mut read, &mut write).await.unwrap();
    write.shutdown().await.unwrap();
}

#[test]
fn all_streams_of_both_sides_get_their_own_bytes() {
    for_seeds(6, |seed| {
        runtime().block_on(bounded(format!("seed {seed}"), 60, async {
            let mut rng = Rng::new(seed);
            let (one, other) = sides(1 + rng.below(4) as u32).await;
            let count = 1 + rng.below(40);
            let mut tasks = JoinSet::new();
            for number in 0..count {
                let bytes = [0, 1, 3_000, 70_000, 3_000_000][rng.below(5) as usize];
                for side in [&one, &other] {
                    tasks.spawn(exchange(side.open().unwrap(), number, bytes, Rng::new(rng.next_u64())));
                }
            }
            for _ in 0..count {
                for side in [&one, &other] {
                    tasks.spawn(echo(side.accept().await.unwrap()));
                }
            }
            tasks.join_all().await;
            let (closed, also) = tokio::join!(one.close(), other.close());
            closed.unwrap();
            also.unwrap();
        }));
    });
}

#[test]
fn a_short_transfer_does_not_wait_for_a_long_one() {
    runtime().block_on(bounded("a short transfer", 60, async {
        let (one, other) = sides(1).await;
        let mut long = one.open().unwrap();
        // What the peer does not read stays in the window of its stream.
        let writing = tokio::spawn(async move {
            let _ = long.write_all(&vec![7; 50_000_000]).await;
            long
        });
        let unread = other.accept().await.unwrap();
        for number in 0..100 {
            let mut short = one.open().unwrap();
            short.write_all(&pattern(number, 1024)).await.unwrap();
            let mut accepted = other.accept().await.unwrap();
            let mut got = vec![0; 1024];
            accepted.read_exact(&mut got).await.unwrap();
            assert!(got == pattern(number, 1024));
        }
        assert!(!writing.is_finished(), "the long one still waits");
        drop(unread);
        let long = writing.await.unwrap();
        drop(long);
    }));
}

#[test]
fn a_reset_and_a_dropped_stream_reach_the_peer() {
    runtime().block_on(bounded("resets", 60, async {
        let (one, other) = sides(1).await;
        let mut stream = one.open().unwrap();
        stream.write_all(b"x").await.unwrap();
        let mut accepted = other.accept().await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
        let waiting = tokio::spawn(async move { (accepted.read_u8().await, accepted.write_all(b"y").await) });
        tokio::task::yield_now().await;
        stream.reset(ResetCode(9));
        let (read, written) = waiting.await.unwrap();
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(written.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(stream);
        // One that is dropped before it was read to its end.
        let mut stream = one.open().unwrap();
        stream.write_all(b"x").await.unwrap();
        drop(other.accept().await.unwrap());
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(stream);
        let (closed, also) = tokio::join!(one.close(), other.close());
        closed.unwrap();
        also.unwrap();
    }));
}

#[test]
fn a_lost_session_resets_its_streams() {
    runtime().block_on(bounded("a lost session", 60, async {
        let (client, server, _listener) = pair(Config::new()).await;
        let one = client.into_streams();
        let mut stream = one.open().unwrap();
        stream.write_all(b"x").await.unwrap();
        drop(server);
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(stream.write_all(b"y").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(matches!(one.open(), Err(Error::Aborted(_))));
        assert!(matches!(one.accept().await, Err(Error::Aborted(_))));
    }));
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_the_session() {
    runtime().block_on(bounded("a lying peer", 60, async {
        let (client, server, _listener) = pair(Config::new()).await;
        let streams = client.into_streams();
        let mut liar: Session = server;
        // Bytes of a stream of its own, far beyond the window.
        let mut frame = vec![1, 0, 1, 0, 1, 0, 0, 0, 0, 0];
        frame.extend_from_slice(&(1u64 << 40).to_le_bytes()[..6]);
        frame.push(7);
        liar.send(&frame).await.unwrap();
        let mut stream = streams.accept().await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let Err(error) = streams.accept().await else { panic!("a stream") };
        assert!(matches!(error, Error::Aborted(_)), "{error}");
        let heard = liar.recv(&mut [0; 100]).await.unwrap_err().to_string();
        assert!(heard.contains("broke the protocol of streams") && heard.contains("beyond its limit"), "{heard}");
    }));
}
