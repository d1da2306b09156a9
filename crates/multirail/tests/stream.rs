//! The byte stream over loopback: the reader gets the written bytes for any sizes of reads and
//! writes, and each side waits as documented.

use multirail::session::{Accepted, COPY_LIMIT_BYTES, ListenConfig, Listener, WINDOW_BYTES};
use multirail::{Config, Error, Session, Stream};
use multirail_testing::proptest_config;
use proptest::prelude::*;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

const MIB: usize = 1 << 20;
/// A new stream's writer can write this much without a reader: less than the smallest buffers of
/// the kernel and the outbox.
const UNREAD_BYTES: usize = 150_000;
/// The time limit of a test, ten times what any test takes.
const LIMIT: Duration = Duration::from_secs(15);

/// Runs a test's future on one thread with a time limit.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, test).await.expect("the test is stuck") })
}

async fn sessions(config: Config) -> (Session, Session) {
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), config.clone());
    let mut listener = Listener::bind(listen).await.unwrap();
    let address = listener.address().to_string();
    let server = async {
        let Accepted::Session(server) = listener.accept().await.unwrap() else { panic!("a session") };
        server.start()
    };
    let (client, server) = tokio::join!(Session::connect(&address, config), server);
    (client.unwrap(), server)
}

async fn pair(channels_per_rail: u32) -> (Stream, Stream) {
    let (client, server) = sessions(Config::new().channels(NonZero::new(channels_per_rail).unwrap())).await;
    (client.into_stream(), server.into_stream())
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 256 * 7) as u8).collect()
}

/// Polls a read or write once.
async fn once<T>(mut poll: impl FnMut(&mut std::task::Context<'_>) -> Poll<T>) -> Option<T> {
    poll_fn(|cx| match poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Writes until the stream has been full for a while.
async fn fill(stream: &mut Stream) -> usize {
    let chunk = pattern(100_000);
    let mut accepted = 0;
    while let Ok(n) = timeout(Duration::from_millis(400), stream.write(&chunk[accepted % 1000..])).await {
        accepted += n.unwrap();
    }
    accepted
}

#[test]
fn the_reader_gets_all_bytes_and_then_the_end() {
    run(async {
        for channels in [1, 3] {
            let (mut client, mut server) = pair(channels).await;
            let sent = pattern(5 * MIB + 1);
            let write = async {
                client.write_all(&sent).await.unwrap();
                client.shutdown().await.unwrap();
            };
            let mut read = Vec::new();
            let (_, n) = tokio::join!(write, server.read_to_end(&mut read));
            assert_eq!(n.unwrap(), sent.len());
            assert!(read == sent);
            assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0, "the end lasts");
        }
    });
}

#[test]
fn one_direction_continues_after_the_end_of_the_other() {
    run(async {
        let (mut client, mut server) = pair(2).await;
        client.write_all(b"question").await.unwrap();
        let ask = async {
            client.shutdown().await.unwrap();
            let late = client.write(b"x").await.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::BrokenPipe);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let answer = async {
            let mut question = String::new();
            server.read_to_string(&mut question).await.unwrap();
            assert_eq!(question, "question");
            server.write_all(&pattern(300_000)).await.unwrap();
            server.shutdown().await.unwrap();
        };
        assert!(tokio::join!(ask, answer).0 == pattern(300_000));
    });
}

#[test]
fn a_dropped_writing_half_ends_the_stream_and_loses_nothing() {
    run(async {
        let (client, mut server) = pair(2).await;
        let (_reader, mut writer) = client.into_split();
        let sent = pattern(3 * MIB);
        let write = async {
            writer.write_all(&sent).await.unwrap();
            drop(writer);
        };
        let mut read = Vec::new();
        let (_, n) = tokio::join!(write, server.read_to_end(&mut read));
        n.unwrap();
        assert!(read == sent);
    });
}

#[test]
fn a_dropped_stream_delivers_what_was_written() {
    run(async {
        let (mut client, mut server) = pair(2).await;
        let sent = pattern(UNREAD_BYTES);
        client.write_all(&sent).await.unwrap();
        drop(client);
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        assert!(read == sent);
    });
}

#[test]
fn written_bytes_are_sent_without_another_call() {
    run(async {
        let (mut client, mut server) = pair(2).await;
        let sent = pattern(UNREAD_BYTES);
        client.write_all(&sent).await.unwrap();
        // The test makes no further call of the client, whose memory may still hold the last bytes.
        let mut read = vec![0; sent.len()];
        server.read_exact(&mut read).await.unwrap();
        assert!(read == sent);
    });
}

#[test]
fn a_burst_of_single_bytes_becomes_few_messages() {
    run(async {
        let (client, server) = sessions(Config::default()).await;
        let watch = client.watch();
        let (mut client, mut server) = (client.into_stream(), server.into_stream());
        // This fills the rails.
        let filled = fill(&mut client).await;
        let before = watch.stats().control_messages;
        let burst = pattern(50_000);
        let write = async {
            for byte in &burst {
                client.write_all(&[*byte]).await.unwrap();
            }
            client.flush().await.unwrap();
        };
        let mut rest = vec![0; filled + burst.len()];
        let (_, read) = tokio::join!(write, server.read_exact(&mut rest));
        read.unwrap();
        assert!(rest[filled..] == burst);
        let messages = watch.stats().control_messages - before;
        assert!(messages < 100, "{messages} headers for {} writes", burst.len());
    });
}

#[test]
fn tiny_buffers_read_everything() {
    run(async {
        let (mut client, mut server) = pair(2).await;
        let sent = pattern(200_000);
        let write = async {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        };
        let read = async {
            let mut read = Vec::new();
            for size in (1..8).cycle() {
                let mut buffer = [0; 8];
                match server.read(&mut buffer[..size]).await.unwrap() {
                    0 => return read,
                    n => read.extend_from_slice(&buffer[..n]),
                }
            }
            read
        };
        assert!(tokio::join!(write, read).1 == sent);
    });
}

#[test]
fn dropped_reads_and_writes_lose_nothing() {
    run(async {
        let (mut client, mut server) = pair(3).await;
        let sent = pattern(4 * MIB);
        let write = async {
            let mut at = 0;
            for turn in 0.. {
                if at == sent.len() {
                    break;
                }
                let end = sent.len().min(at + 1 + turn * 7919 % 90_000);
                let mut half = Pin::new(&mut client);
                // The future is polled once and dropped.
                match once(|cx| half.as_mut().poll_write(cx, &sent[at..end])).await {
                    Some(n) => at += n.unwrap(),
                    None => tokio::time::sleep(Duration::from_micros(200)).await,
                }
            }
            client.shutdown().await.unwrap();
        };
        let read = async {
            let mut read = Vec::new();
            for turn in 0.. {
                // Every poll has a new buffer of another size, with room for a whole message or
                // not.
                let mut memory = vec![0; 1 + turn * 7907 % 150_000];
                let mut buffer = ReadBuf::new(&mut memory);
                match once(|cx| Pin::new(&mut server).poll_read(cx, &mut buffer)).await {
                    Some(done) => done.unwrap(),
                    None => {
                        tokio::time::sleep(Duration::from_micros(300)).await;
                        continue;
                    }
                }
                if buffer.filled().is_empty() {
                    break;
                }
                read.extend_from_slice(buffer.filled());
            }
            read
        };
        assert!(tokio::join!(write, read).1 == sent);
    });
}

#[test]
fn a_writer_waits_for_its_reader() {
    run(async {
        let (mut client, mut server) = pair(2).await;
        let accepted = fill(&mut client).await as u64;
        assert!(accepted <= WINDOW_BYTES + COPY_LIMIT_BYTES, "{accepted} bytes accepted");
        assert!(accepted >= UNREAD_BYTES as u64, "{accepted} bytes accepted");
        assert!(timeout(Duration::from_millis(50), client.flush()).await.is_err(), "not all is with the kernel");
        let mut read = vec![0; accepted as usize];
        server.read_exact(&mut read).await.unwrap();
        client.flush().await.unwrap();
    });
}

#[test]
fn both_directions_at_once() {
    run(async {
        let (client, server) = pair(2).await;
        let sent = pattern(6 * MIB);
        let end = async |stream: Stream| {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let write = async {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut read = Vec::new();
            let (_, n) = tokio::join!(write, reader.read_to_end(&mut read));
            n.unwrap();
            assert!(read == sent);
        };
        tokio::join!(end(client), end(server));
    });
}

#[test]
fn halves_work_in_separate_tasks() {
    run(async {
        let (client, server) = pair(2).await;
        let sent = pattern(3 * MIB);
        let (mut from_server, mut to_server) = client.into_split();
        let (mut from_client, mut to_client) = server.into_split();
        let copy = sent.clone();
        let ask = tokio::spawn(async move {
            to_server.write_all(&copy).await?;
            to_server.shutdown().await
        });
        let echo = tokio::spawn(async move {
            tokio::io::copy(&mut from_client, &mut to_client).await?;
            to_client.shutdown().await
        });
        let mut read = Vec::new();
        from_server.read_to_end(&mut read).await.unwrap();
        assert!(read == sent);
        ask.await.unwrap().unwrap();
        echo.await.unwrap().unwrap();
    });
}

#[test]
fn copy_bidirectional_joins_a_stream_and_a_pipe() {
    run(async {
        let (mut client, mut server) = pair(2).await;
        let (mut near, mut far) = tokio::io::duplex(3000);
        let sent = pattern(MIB);
        let proxy = tokio::io::copy_bidirectional(&mut near, &mut client);
        let echo = async {
            let (reader, writer) = server.split();
            tokio::io::copy(reader, writer).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let ask = async {
            let (mut reader, mut writer) = tokio::io::split(&mut far);
            let write = async {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut read = Vec::new();
            tokio::join!(write, reader.read_to_end(&mut read)).1.unwrap();
            read
        };
        let (counts, _, read) = tokio::join!(proxy, echo, ask);
        assert_eq!(counts.unwrap(), (MIB as u64, MIB as u64));
        assert!(read == sent);
    });
}

fn inner(error: &io::Error) -> &Error {
    error.get_ref().and_then(|e| e.downcast_ref()).expect("a multirail error")
}

#[test]
fn a_lost_peer_is_an_error_for_reader_and_writer() {
    let config = Config::new().give_up_after(Duration::from_millis(300));
    let (tell, address) = std::sync::mpsc::channel();
    let (vanish, vanishes) = tokio::sync::oneshot::channel::<()>();
    let session = config.clone();
    let peer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kept = runtime.block_on(async {
            let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), session)).await.unwrap();
            tell.send(listener.address().to_string()).unwrap();
            let Accepted::Session(session) = listener.accept().await.unwrap() else { panic!("a session") };
            let stream = session.start().into_stream();
            let _ = vanishes.await;
            (stream, listener)
        });
        // No task of it continues in the background, as if its process had been killed.
        drop(runtime);
        drop(kept);
    });
    run(async {
        let session = Session::connect(&address.recv().unwrap(), config).await.unwrap();
        let mut stream = session.into_stream();
        fill(&mut stream).await;
        vanish.send(()).unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let chunk = pattern(100_000);
        let write = async {
            loop {
                if let Err(error) = writer.write_all(&chunk).await {
                    break error;
                }
            }
        };
        let mut room = [0; 10];
        let (read, written) = tokio::join!(reader.read(&mut room), write);
        for error in [read.unwrap_err(), written, writer.flush().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(matches!(inner(&error), Error::AllRailsLost(_)), "{error}");
        }
    });
    peer.join().unwrap();
}

#[test]
fn a_message_longer_than_a_stream_sends_is_refused() {
    run(async {
        let (mut client, server) = sessions(Config::default()).await;
        let mut server = server.into_stream();
        let long = vec![0; COPY_LIMIT_BYTES as usize + 1];
        let sending = client.send(&long);
        let reading = async {
            let error = server.read(&mut [0; 10]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(matches!(inner(&error), Error::MessageTooLarge { .. }), "{error}");
        };
        tokio::select! {
            _ = sending => panic!("it was sent without a receiver"),
            () = reading => {}
        }
    });
}

proptest! {
    #![proptest_config(proptest_config(12))]

    #[test]
    fn any_cut_of_writes_and_reads_gives_the_same_bytes(
        writes in prop::collection::vec(prop_oneof![0..5usize, 0..5_000usize, 0..200_000usize], 0..40),
        reads in prop::collection::vec(prop_oneof![1..5usize, 1..5_000usize, 1..200_000usize], 1..40),
        channels in 1..4u32,
        flushes in any::<u64>(),
    ) {
        run(async {
            let (mut client, mut server) = pair(channels).await;
            let oracle = pattern(writes.iter().sum());
            let write = async {
                let mut at = 0;
                for (turn, size) in writes.iter().enumerate() {
                    client.write_all(&oracle[at..at + size]).await.unwrap();
                    at += size;
                    if flushes >> (turn % 64) & 1 == 1 {
                        client.flush().await.unwrap();
                    }
                }
                client.shutdown().await.unwrap();
            };
            let read = async {
                let mut read = Vec::new();
                for size in reads.iter().cycle() {
                    let mut buffer = vec![0; *size];
                    match server.read(&mut buffer).await.unwrap() {
                        0 => break,
                        n => read.extend_from_slice(&buffer[..n]),
                    }
                }
                read
            };
            assert!(tokio::join!(write, read).1 == oracle);
        });
    }
}
