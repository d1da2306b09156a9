//! Sessions over a faulty network: despite any faults of connections, every message arrives once,
//! in order and intact.

mod common;

use common::*;
use multirail::payload::VecSink;
use multirail::{Config, Error, Session, Strategy};
use multirail_testing::proptest_config;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use proptest::test_runner::{Config as RunnerConfig, TestError, TestRunner};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::num::NonZero;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, LocalSet};

/// A fault of one connection.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// The connection ends normally, and the data in the relay is lost.
    End,
    /// The connection ends with a reset.
    Reset,
    /// The connection carries nothing for this many milliseconds.
    Stall(u16),
    /// The connection carries this many bytes one by one, and is then normal again.
    Trickle(u16),
}

/// A fault after a pause, of one connection (the oldest is the control connection) or of all.
#[derive(Debug, Clone, Copy)]
struct Blow {
    after_ms: u16,
    /// The index among the connections that are up; `None`: all.
    which: Option<u8>,
    deed: Deed,
}

#[derive(Debug, Clone)]
struct Case {
    strategy: Strategy,
    channels_per_rail: NonZero<u32>,
    fragment_bytes: u32,
    /// Lengths of the messages from the client and from the server.
    sizes: [Vec<usize>; 2],
    /// Pauses of the receivers, in milliseconds, before the message of that number.
    pauses: Vec<(u8, u8)>,
    blows: Vec<Blow>,
}

fn sizes() -> impl proptest::strategy::Strategy<Value = Vec<usize>> {
    let size = prop_oneof![
        2 => Just(0usize),
        6 => 1..200usize,
        4 => 200..20_000usize,
        2 => 60_000..70_000usize,
        2 => 70_000..600_000usize,
    ];
    prop::collection::vec(size, 0..40)
}

fn cases() -> impl proptest::strategy::Strategy<Value = Case> {
    let deed = prop_oneof![
        2 => Just(Deed::End),
        4 => Just(Deed::Reset),
        2 => (1..300u16).prop_map(Deed::Stall),
        2 => (1..2000u16).prop_map(Deed::Trickle),
    ];
    let which = prop_oneof![4 => (0..8u8).prop_map(Some), 1 => Just(None)];
    let blow = (0..60u16, which, deed).prop_map(|(after_ms, which, deed)| Blow { after_ms, which, deed });
    let strategy = prop::sample::select(Strategy::ALL);
    let parts = (
        strategy,
        (1..5u32).prop_map(|count| NonZero::new(count).unwrap()),
        prop::sample::select(&[512u32, 2048, 16 << 10][..]),
        sizes(),
        sizes(),
    );
    (parts, prop::collection::vec((0..40u8, 0..120u8), 0..4), prop::collection::vec(blow, 0..8)).prop_map(
        |((strategy, channels_per_rail, fragment_bytes, up, down), pauses, blows)| Case {
            strategy,
            channels_per_rail,
            fragment_bytes,
            sizes: [up, down],
            pauses,
            blows,
        },
    )
}

/// The faults of one connection of the relay, and a way to end it.
struct Line {
    stalled_until: RefCell<Option<Instant>>,
    trickle: RefCell<u32>,
    ends: RefCell<Vec<AbortHandle>>,
    reset: RefCell<bool>,
}

/// A relay between client and server that applies faults to connections.
struct Relay {
    address: SocketAddr,
    lines: Rc<RefCell<Vec<Rc<Line>>>>,
}

impl Relay {
    async fn start(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let lines: Rc<RefCell<Vec<Rc<Line>>>> = Rc::default();
        let all = lines.clone();
        tokio::task::spawn_local(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(server).await else { continue };
                let line = Rc::new(Line {
                    stalled_until: RefCell::default(),
                    trickle: RefCell::default(),
                    ends: RefCell::default(),
                    reset: RefCell::default(),
                });
                all.borrow_mut().push(line.clone());
                let (near_side, all) = (line.clone(), all.clone());
                let carrying = tokio::task::spawn_local(async move {
                    // Aborting this task drops them, which closes both ends.
                    let mut ends = Ends(Some((near, far)), near_side.clone());
                    if let Some((near, far)) = &mut ends.0 {
                        let (mut near_in, mut near_out) = near.split();
                        let (mut far_in, mut far_out) = far.split();
                        tokio::select! {
                            () = carry(&near_side, &mut near_in, &mut far_out) => {}
                            () = carry(&near_side, &mut far_in, &mut near_out) => {}
                        }
                    }
                    all.borrow_mut().retain(|l| !Rc::ptr_eq(l, &near_side));
                });
                line.ends.borrow_mut().push(carrying.abort_handle());
            }
        });
        Relay { address, lines }
    }

    fn strike(&self, blow: Blow) {
        let lines = self.lines.borrow().clone();
        if lines.is_empty() {
            return;
        }
        let struck = match blow.which {
            Some(which) => vec![lines[usize::from(which) % lines.len()].clone()],
            None => lines,
        };
        for line in struck {
            match blow.deed {
                Deed::Stall(ms) => {
                    *line.stalled_until.borrow_mut() = Some(Instant::now() + Duration::from_millis(ms.into()));
                }
                Deed::Trickle(bytes) => *line.trickle.borrow_mut() = bytes.into(),
                Deed::End | Deed::Reset => {
                    *line.reset.borrow_mut() = matches!(blow.deed, Deed::Reset);
                    line.ends.borrow().iter().for_each(AbortHandle::abort);
                    self.lines.borrow_mut().retain(|l| !Rc::ptr_eq(l, &line));
                }
            }
        }
    }
}

struct Ends(Option<(TcpStream, TcpStream)>, Rc<Line>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some((near, far)) = self.0.take()
            && *self.1.reset.borrow()
        {
            reset(near);
            reset(far);
        }
    }
}

async fn carry(line: &Line, from: &mut (impl AsyncReadExt + Unpin), to: &mut (impl AsyncWriteExt + Unpin)) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let one_by_one = *line.trickle.borrow() > 0;
        let most = if one_by_one { 1 } else { buffer.len() };
        let Ok(n @ 1..) = from.read(&mut buffer[..most]).await else { return };
        let until = *line.stalled_until.borrow();
        if let Some(until) = until {
            tokio::time::sleep_until(until.into()).await;
        }
        if one_by_one {
            let left = line.trickle.borrow().saturating_sub(1);
            *line.trickle.borrow_mut() = left;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

async fn play(case: &Case) {
    let config =
        Config::new().strategy(case.strategy).channels(case.channels_per_rail).fragment_bytes(case.fragment_bytes);
    let mut listener = listen(config.clone()).await;
    let relay = Relay::start(listener.address()).await;
    let address = relay.address.to_string();
    let (client, server) = tokio::join!(Session::connect(&address, config), accept(&mut listener));
    let (mut client, mut server) = (client.expect("a session"), server);
    let [up, down] = &case.sizes;
    {
        let watches = [client.watch(), server.watch()];
        let progress = [const { RefCell::new(0usize) }; 4];
        let (client_out, client_in) = client.split();
        let (server_out, server_in) = server.split();
        let send = async |out: &mut multirail::session::Sender, sizes: &[usize], way: u64, done: &RefCell<usize>| {
            for (number, size) in sizes.iter().enumerate() {
                out.send(&pattern(way << 32 | number as u64, *size)).await.expect("sent");
                *done.borrow_mut() += 1;
            }
        };
        let receive =
            async |input: &mut multirail::session::Receiver, sizes: &[usize], way: u64, done: &RefCell<usize>| {
                for (number, size) in sizes.iter().enumerate() {
                    for pause in case.pauses.iter().filter(|p| usize::from(p.0) == number) {
                        tokio::time::sleep(Duration::from_millis(pause.1.into())).await;
                    }
                    let mut sink = VecSink::new(1 << 20);
                    input.recv_into(&mut sink).await.expect("received");
                    assert_same(&sink.bytes, &pattern(way << 32 | number as u64, *size), &format!("message {number}"));
                    *done.borrow_mut() += 1;
                }
            };
        let striking = async {
            for blow in &case.blows {
                tokio::time::sleep(Duration::from_millis(blow.after_ms.into())).await;
                relay.strike(*blow);
            }
        };
        let all = async {
            tokio::join!(
                send(client_out, up, 1, &progress[0]),
                receive(server_in, up, 1, &progress[1]),
                send(server_out, down, 2, &progress[2]),
                receive(client_in, down, 2, &progress[3]),
                striking,
            )
        };
        if tokio::time::timeout(Duration::from_secs(12), all).await.is_err() {
            let [up_sent, up_got, down_sent, down_got] = progress.each_ref().map(|p| *p.borrow());
            panic!(
                "stuck: up {up_sent} sent and {up_got} received of {}, down {down_sent} and {down_got} of {}; {} lines; client {:?}, server {:?}",
                up.len(),
                down.len(),
                relay.lines.borrow().len(),
                watches[0].rails(),
                watches[1].rails(),
            );
        }
    }
    // No message arrives twice, and the session ends.
    let mut sink = VecSink::new(1 << 20);
    let (closed, end) =
        bounded("the end", 12, async { tokio::join!(client.close(), server.recv_into(&mut sink)) }).await;
    closed.expect("closed");
    assert!(matches!(end, Err(Error::Closed)), "after the last message: {end:?}");
}

/// Random strategies, channel counts, messages in both directions and connection failures. A
/// failing case is printed, and its seed is saved.
#[test]
fn every_message_arrives_once_in_order_and_intact() {
    const TIME: Duration = Duration::from_secs(15);
    let config = RunnerConfig { max_shrink_iters: 12, source_file: Some(file!()), ..proptest_config(60) };
    let mut runner = TestRunner::new(config);
    let (begun, played, failed) = (Instant::now(), Cell::new(0), Cell::new(false));
    let outcome = runner.run(&cases(), |case| {
        // A slow machine runs fewer cases instead of a longer test. A failing case may take longer,
        // to be simplified.
        if begun.elapsed() < TIME || failed.get() {
            played.set(played.get() + 1);
            failed.set(true);
            runtime().block_on(LocalSet::new().run_until(play(&case)));
            failed.set(false);
        }
        Ok(())
    });
    let played = played.get();
    println!("{played} cases in {:?}", begun.elapsed());
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, case)) => panic!("{reason}\n{case:?}"),
        Err(abort) => panic!("{abort}"),
    }
    assert!(played >= 5, "hardly anything was tried");
}
