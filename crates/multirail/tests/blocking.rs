//! Sessions and streams from plain threads.

use multirail::blocking::{Listener, Session, Stream};
use multirail::session::ListenConfig;
use multirail::{Config, Error};
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs a test, and fails rather than hangs.
fn run(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let test = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(15)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test is stuck"),
        _ => test.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn pair() -> (Session, Session) {
    let config = Config::new().channels(NonZero::<u32>::new(2).unwrap());
    let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), config.clone())).unwrap();
    let address = listener.address().to_string();
    let client = thread::spawn(move || Session::connect(&address, config).unwrap());
    let (server, peer) = listener.accept().unwrap();
    assert!(peer.ip().is_loopback());
    // The session outlives its listener.
    (client.join().unwrap(), server)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 256 * 7) as u8).collect()
}

#[test]
fn messages_come_back() {
    run(|| {
        let (mut client, mut server) = pair();
        let echo = thread::spawn(move || {
            let mut buffer = vec![0; 4_000_000];
            loop {
                match server.recv(&mut buffer) {
                    Ok(n) => server.send(&buffer[..n]).unwrap(),
                    Err(Error::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let mut buffer = vec![0; 4_000_000];
        for size in [0, 1, 65536, 65537, 3_000_000] {
            client.send(&pattern(size)).unwrap();
            let n = client.recv(&mut buffer).unwrap();
            assert!(buffer[..n] == pattern(size), "{size} bytes");
        }
        client.close().unwrap();
        echo.join().unwrap();
    });
}

#[test]
fn halves_work_in_different_threads() {
    run(|| {
        let (client, server) = pair();
        let both = |session: Session| {
            let (mut sender, mut receiver) = session.into_split();
            let send = thread::spawn(move || {
                for turn in 0..20 {
                    sender.send(&pattern(turn * 20_000)).unwrap();
                }
                sender.finish().unwrap();
            });
            let mut buffer = vec![0; 400_000];
            for turn in 0..20 {
                let n = receiver.recv(&mut buffer).unwrap();
                assert!(buffer[..n] == pattern(turn * 20_000));
            }
            assert!(matches!(receiver.recv(&mut buffer), Err(Error::Closed)));
            send.join().unwrap();
        };
        let other = thread::spawn(move || both(server));
        both(client);
        other.join().unwrap();
    });
}

#[test]
fn streams_are_read_and_written() {
    run(|| {
        let (client, server) = pair();
        let sent = pattern(3_000_000);
        let end = |stream: Stream, sent: Vec<u8>| {
            let (mut reader, mut writer) = stream.into_split();
            let copy = sent.clone();
            let write = thread::spawn(move || {
                writer.write_all(&copy).unwrap();
                writer.flush().unwrap();
                writer.shutdown().unwrap();
            });
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert!(read == sent);
            write.join().unwrap();
        };
        let copy = sent.clone();
        let other = thread::spawn(move || end(server.into_stream(), copy));
        end(client.into_stream(), sent);
        other.join().unwrap();
    });
}

#[test]
fn a_dropped_stream_is_delivered_in_the_background() {
    run(|| {
        let (client, server) = pair();
        let mut client = client.into_stream();
        client.write_all(&pattern(150_000)).unwrap();
        drop(client);
        let mut read = Vec::new();
        server.into_stream().read_to_end(&mut read).unwrap();
        assert!(read == pattern(150_000));
    });
}

#[test]
fn a_session_confirms_while_its_caller_computes() {
    run(|| {
        let (mut client, mut server) = pair();
        client.send(&pattern(1000)).unwrap();
        server.recv(&mut [0; 1000]).unwrap();
        // The server's caller makes no call from here on.
        client.close().unwrap();
        drop(server);
    });
}
