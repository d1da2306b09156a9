//! Clients that leave without ending their session: it ends soon, unless something can be resumed.

mod common;

use common::*;
use multirail::Error;
use multirail::handshake::raw::Joined;
use multirail::payload::VecSink;
use multirail_proto::wire::{Control, Frame};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// A client announces a message and leaves, by closing its connections or by resetting them: the
/// session ends long before it would give up lost rails.
#[test]
fn a_session_ends_soon_after_its_client_has_left() {
    runtime().block_on(async {
        for resets in [false, true] {
            for said in [
                vec![],
                frames(&[Frame::Open { message: 0, total_bytes: 1 << 30, confirm: true }]),
                whole(0, b"complete"),
            ] {
                let mut listener = listen(plaintext()).await;
                let raw = Raw::open(listener.address(), None).await;
                let mut server = accept(&mut listener).await;
                let mut channel = raw.channel(0).await;
                channel.write_all(&said).await.unwrap();
                let mut sink = VecSink::new(1 << 30);
                if said.ends_with(b"complete") {
                    bounded("the message", 5, server.recv_into(&mut sink)).await.unwrap();
                } else {
                    let nothing = tokio::time::timeout(Duration::from_millis(200), server.recv(&mut [0; 0])).await;
                    assert!(!matches!(nothing, Ok(Ok(_))), "{nothing:?}");
                }
                if resets {
                    reset(channel);
                    reset(raw.control);
                } else {
                    drop((channel, raw));
                }
                let end = bounded("an end", 10, server.recv_into(&mut sink)).await.unwrap_err();
                assert_says(&end, &["closed all connections"]);
            }
        }
    });
}

/// A client that has left in the middle of a message may come back and finish it.
#[test]
fn a_message_that_is_half_there_can_be_finished() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let message = pattern(1, 200_000);
        let mut first = frames(&[
            Frame::Open { message: 0, total_bytes: 200_000, confirm: false },
            Frame::Run { message: 0, offset: 0, length: 100_000 },
        ]);
        first.extend_from_slice(&message[..100_000]);
        let mut second = frames(&[
            Frame::Open { message: 0, total_bytes: 200_000, confirm: false },
            Frame::Run { message: 0, offset: 100_000, length: 100_000 },
        ]);
        second.extend_from_slice(&message[100_000..]);
        let returning = async {
            let mut channel = raw.channel(0).await;
            channel.write_all(&first).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(channel);
            tokio::time::sleep(Duration::from_millis(2500)).await;
            let control = raw.join(Joined::Control).await.unwrap();
            let mut channel = raw.try_channel(1, Some(0)).await.unwrap();
            channel.write_all(&second).await.unwrap();
            (control, channel)
        };
        let mut sink = VecSink::new(1 << 20);
        let (kept, received) =
            bounded("the message", 20, async { tokio::join!(returning, server.recv_into(&mut sink)) }).await;
        received.expect("the whole message");
        assert_same(&sink.bytes, &message, "the message");
        drop(kept);
    });
}

/// A client that closes the session before it leaves has closed it, however long the server's
/// application takes to look.
#[test]
fn a_client_that_said_goodbye_has_not_just_left() {
    runtime().block_on(async {
        let mut listener = listen(plaintext()).await;
        let mut raw = Raw::open(listener.address(), None).await;
        let mut server = accept(&mut listener).await;
        let channel = raw.channel(0).await;
        raw.say(&Control::Close { messages: 0 }).await;
        drop((channel, raw));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let end = bounded("an end", 10, server.recv(&mut [])).await.unwrap_err();
        assert!(matches!(end, Error::Closed), "{end:?}");
    });
}
