//! A proxy between a client and a server changes, repeats or redirects what it carries.

mod common;

use common::proxy::{Change, proxy};
use common::*;
use multirail::session::{Accepted, Listener};
use multirail::{AuthorizedKeys, Client, Config, Error, Identity, KnownHosts, Session, Token};
use multirail_testing::for_seeds;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::net::TcpListener;

async fn listening() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Passes sessions of a listener to `serve`, one after the other.
async fn serve_all(listener: &mut Listener, mut serve: impl AsyncFnMut(Session)) {
    while let Ok(accepted) = listener.accept().await {
        if let Accepted::Session(new) = accepted {
            serve(new.start()).await;
        }
    }
}

/// A bit is flipped somewhere in some connection of a session. The message arrives unchanged, or the
/// session ends with an error.
#[test]
fn a_flipped_bit_changes_no_message() {
    let runtime = runtime();
    for_seeds(40, |seed| {
        let mut rng = Rng::new(seed);
        let message = pattern(rng.next_u64(), 600_000);
        let (connection, is_up) = (rng.below(3) as usize, rng.below(4) > 0);
        // Most are in records; a channel's handshake has some 200 bytes.
        let most = if rng.below(3) == 0 { 2000 } else { 600_000 };
        let (at, bit) = (rng.below(most), rng.below(8));
        let change: Box<Change> = Box::new(move |number, up, before, bytes| {
            let within = at.checked_sub(before).map(|at| at as usize);
            if let (true, Some(byte)) = ((number, up) == (connection, is_up), within.and_then(|at| bytes.get_mut(at))) {
                *byte ^= 1 << bit;
            }
        });
        runtime.block_on(async {
            let config = Config::new().give_up_after(std::time::Duration::from_secs(2));
            let mut listener = listen(config.clone()).await;
            let server = listener.address();
            let (near, address) = listening().await;
            let receiving = serve_all(&mut listener, async |mut session| {
                let mut got = vec![0; message.len()];
                while let Ok(length) = session.recv(&mut got).await {
                    assert_same(&got[..length], &message, "what was received");
                    session.send(b"received").await.unwrap_or_default();
                }
            });
            let sending = async {
                let mut session = Session::connect(&address, config).await?;
                session.send(&message).await?;
                let mut answer = [0; 8];
                session.recv(&mut answer).await?;
                assert_eq!(&answer, b"received");
                Ok::<(), Error>(())
            };
            let attacked = proxy(near, server, Rc::new(RefCell::new(change)));
            let done = async {
                tokio::select! {
                    sent = bounded("the end", 30, sending) => sent,
                    () = attacked => unreachable!("the proxy ended"),
                }
            };
            // The receiver ends with the sender.
            tokio::select! {
                sent = done => if let Err(error) = sent { println!("seed {seed}: {error}") },
                () = receiving => unreachable!("the listener ended"),
            }
        });
    });
}

/// The plaintext of a message is on the path only if both sides asked for plaintext.
#[test]
fn plaintext_is_on_the_path_only_if_both_sides_asked_for_it() {
    runtime().block_on(async {
        let secret = [b"a secret".as_slice(); 40_000].concat();
        for plaintext in [false, true] {
            let config = Config::new().plaintext(plaintext);
            let mut listener = listen(config.clone()).await;
            let server = listener.address();
            let (near, address) = listening().await;
            let seen = Rc::new(RefCell::new(Vec::new()));
            let copy = seen.clone();
            let change: Box<Change> = Box::new(move |_, _, _, bytes| copy.borrow_mut().extend_from_slice(bytes));
            let receiving = serve_all(&mut listener, async |mut session| {
                let mut got = vec![0; secret.len()];
                session.recv(&mut got).await.unwrap();
                assert_eq!(got, secret);
                let _ = session.close().await;
            });
            let sending = async {
                let mut session = Session::connect(&address, config).await.unwrap();
                session.send(&secret).await.unwrap();
                session.close().await.unwrap();
            };
            tokio::select! {
                () = bounded("a message", 20, sending) => {}
                () = receiving => unreachable!("the listener ended"),
                () = proxy(near, server, Rc::new(RefCell::new(change))) => unreachable!("the proxy ended"),
            }
            let seen = seen.borrow();
            assert!(seen.len() > secret.len(), "the proxy carried it");
            let is_read = seen.windows(16).any(|window| window == &secret[..16]);
            assert_eq!(is_read, plaintext);
        }
    });
}

/// A server in between that has a key of its own, and passes everything on to the real one.
#[test]
fn a_server_in_between_is_noticed() {
    runtime().block_on(async {
        let (client, server, thief) = (Identity::generate(), Identity::generate(), Identity::generate());
        // The thief accepts everyone, and may know the token.
        let keys = AuthorizedKeys::default().with(client.public_key(), Client::default());
        let between = Config::new().identity(thief.clone()).authorized_keys(keys).token(token());
        let listener = listen(between).await;
        let address = listener.address().to_string();
        let known = KnownHosts::default().with(&address, server.public_key());
        let connect = async |config: Config| {
            let connecting = Session::connect(&address, config.identity(client.clone()));
            bounded("an answer", 20, connecting).await.map(drop).unwrap_err()
        };
        let error = connect(Config::new().known_hosts(known.clone())).await;
        assert!(matches!(&error, Error::HostChanged { key, .. } if *key == thief.public_key()), "{error:?}");
        let error = connect(Config::new()).await;
        assert!(matches!(&error, Error::HostUnknown { key, .. } if *key == thief.public_key()), "{error:?}");
        let error = connect(Config::new().token(Token::new(b"another"))).await;
        assert!(matches!(error, Error::TokenWrong), "{error:?}");
        // This is also what a redirect to another server with the same token looks like.
        let error = connect(Config::new().token(token()).known_hosts(known)).await;
        assert!(matches!(error, Error::HostChanged { .. }), "{error:?}");
    });
}

/// Records of one connection are inserted into another one of the same session.
#[test]
fn recorded_bytes_of_a_channel_are_refused_in_another() {
    runtime().block_on(async {
        let config = Config::new().channels(std::num::NonZero::new(2).unwrap());
        let mut listener = listen(config.clone()).await;
        let server = listener.address();
        let (near, address) = listening().await;
        // What the first channel sent last goes to the second one instead of its own bytes, once.
        let mut recorded = Vec::new();
        let mut replayed = false;
        let replays = Rc::new(RefCell::new(0));
        let count = replays.clone();
        let change: Box<Change> = Box::new(move |number, is_up, before, bytes| match (number, is_up) {
            (1, true) if before > 100_000 => recorded.clone_from(bytes),
            (2, true) if before > 100_000 && !recorded.is_empty() && !replayed => {
                replayed = true;
                *count.borrow_mut() += 1;
                bytes.clone_from(&recorded);
            }
            _ => {}
        });
        let message = pattern(5, 8 << 20);
        let receiving = serve_all(&mut listener, async |mut session| {
            let mut got = vec![0; message.len()];
            session.recv(&mut got).await.unwrap();
            assert_same(&got, &message, "what was received");
            let _ = session.close().await;
        });
        let sending = async {
            let mut session = Session::connect(&address, config).await.unwrap();
            session.send(&message).await.unwrap();
            session.close().await.unwrap();
        };
        tokio::select! {
            () = bounded("a message", 60, sending) => {}
            () = receiving => unreachable!("the listener ended"),
            () = proxy(near, server, Rc::new(RefCell::new(change))) => unreachable!("the proxy ended"),
        }
        assert_eq!(*replays.borrow(), 1, "nothing was replayed");
    });
}
