//! Rails that fail during transfers between two hosts of a lab: no data is lost, and a returning
//! rail is used again.
//!
//! Where no lab can be made (see `multirail-lab`), each test is skipped.

mod common;

use common::*;
use multirail::payload::VecSink;
use multirail::session::{Accepted, ListenConfig, Listener, Receiver, Sender, Watch};
use multirail::{Config, Error, Session, Strategy};
use multirail_lab::{Lab, LinkState, Topology};
use multirail_testing::{Requirement, for_seeds, skip};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The time limit of each host's part of a test.
const HOST_SECONDS: u64 = 55;

fn lab(rates: &[&str]) -> Option<Lab> {
    if let Err(why) = Lab::supported() {
        skip(Requirement::Namespaces, why);
        return None;
    }
    let topology = Topology::simple(&["a", "b"], rates).expect("a topology");
    Some(Lab::temporary(&topology).expect("a lab"))
}

/// The test's view of the two sessions while it changes the network.
struct Seen {
    client: Watch,
    server: Watch,
    /// The session's number of each of the lab's rails.
    rails: Vec<u32>,
}

impl Seen {
    fn sent(watch: &Watch, rail: u32) -> u64 {
        watch.rails().iter().find(|r| r.rail == rail).map_or(0, |r| r.sent_bytes)
    }

    fn received(watch: &Watch, rail: u32) -> u64 {
        watch.rails().iter().find(|r| r.rail == rail).map_or(0, |r| r.received_bytes)
    }

    fn all_sent(watch: &Watch) -> u64 {
        watch.rails().iter().map(|r| r.sent_bytes).sum()
    }
}

/// Waits until `done` and returns the duration. Panics with the state of the sessions if it takes
/// too long.
fn until(what: &str, seconds: u64, seen: &Seen, done: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > Duration::from_secs(seconds) {
            panic!(
                "{what} did not happen within {seconds} s\nclient {:#?}\nserver {:#?}",
                seen.client.rails(),
                seen.server.rails()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    begun.elapsed()
}

/// Runs a client on host a and a server on host b, each with its own thread and runtime, and `act`
/// beside them.
fn play<C: Send, S: Send>(
    lab: &Lab,
    config: &Config,
    client: impl AsyncFnOnce(Session) -> C + Send,
    server: impl AsyncFnOnce(Session) -> S + Send,
    act: impl FnOnce(&Lab, &Seen),
) -> (C, S) {
    let config = config.clone().token(token());
    let (port_sender, port) = mpsc::channel();
    let (server_sender, server_watch) = mpsc::channel();
    let (client_sender, client_watch) = mpsc::channel();
    std::thread::scope(|scope| {
        let session = config.clone();
        let host_b = scope.spawn(move || {
            let part = async move || {
                let listen = ListenConfig::new(([0, 0, 0, 0], 0), session);
                let mut listener = Listener::bind(listen).await.expect("a listener");
                port_sender.send(listener.address().port()).expect("the test waits for it");
                let Accepted::Session(new) = listener.accept().await.expect("a peer") else { panic!("not a session") };
                let session = new.start();
                server_sender.send(session.watch()).expect("the test waits for it");
                let done = bounded("the server's part", HOST_SECONDS, server(session)).await;
                // Others may still want to join.
                drop(listener);
                done
            };
            lab.run_in("b", move || runtime().block_on(part())).expect("host b")
        });
        let port = port.recv_timeout(Duration::from_secs(10)).expect("a listener on host b");
        let host = format!("{}:{port}", lab.address("b", 0).expect("an address"));
        let host_a = scope.spawn(move || {
            let part = async move || {
                let session = bounded("a session", 10, Session::connect(&host, config)).await.expect("a session");
                client_sender.send(session.watch()).expect("the test waits for it");
                bounded("the client's part", HOST_SECONDS, client(session)).await
            };
            lab.run_in("a", move || runtime().block_on(part())).expect("host a")
        });
        let client = client_watch.recv_timeout(Duration::from_secs(15)).expect("a session on host a");
        let server = server_watch.recv_timeout(Duration::from_secs(15)).expect("a session on host b");
        let number = |rail: usize| {
            let address = IpAddr::from(lab.address("b", rail).expect("an address"));
            let status = client.rails();
            let found = status.iter().find(|r| r.addresses.is_some_and(|(_, to)| to.ip() == address));
            found.unwrap_or_else(|| panic!("no channel on rail {rail}: {status:#?}")).rail
        };
        let rails = (0..lab.rails()).map(number).collect();
        act(lab, &Seen { client, server, rails });
        let (client, server) = (host_a.join(), host_b.join());
        (
            client.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            server.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    })
}

async fn send_all(out: &mut Sender, way: u64, sizes: &[usize]) {
    for (number, size) in sizes.iter().enumerate() {
        out.send(&pattern(way << 32 | number as u64, *size)).await.expect("sent");
    }
}

async fn receive_all(input: &mut Receiver, way: u64, sizes: &[usize]) {
    for (number, size) in sizes.iter().enumerate() {
        let mut sink = VecSink::new(32 << 20);
        input.recv_into(&mut sink).await.expect("received");
        assert_same(&sink.bytes, &pattern(way << 32 | number as u64, *size), &format!("message {number}"));
    }
}

/// After the last message one side closes. The other side receives the end and no other message.
async fn close(session: Session) {
    session.close().await.expect("closed");
}

async fn hear_close(mut session: Session) {
    let end = session.recv(&mut []).await;
    assert!(matches!(end, Err(Error::Closed)), "after the last message: {end:?}");
    // The other side may have to come back over another rail to learn that all has arrived.
    close(session).await;
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Up,
    Down,
}

/// In each round a rail fails within a message of 16 MiB. Then the rail returns, and small messages
/// follow until it carries some of them.
fn rail_fails_in_mid_message(link: LinkState, rounds: &[(Way, usize)]) {
    const MESSAGE_BYTES: usize = 16 << 20;
    const SMALL_BYTES: usize = 256 << 10;
    let Some(lab) = lab(&["50mbit", "50mbit"]) else { return };
    let received = AtomicU32::new(0);
    let back = AtomicU32::new(0);
    let side = async |mut session: Session, me: Way| {
        for (number, (way, _)) in (0u32..).zip(rounds) {
            let message = pattern(u64::from(number), MESSAGE_BYTES);
            if *way == me {
                session.send(&message).await.expect("sent");
                loop {
                    let last = back.load(Ordering::SeqCst) > number;
                    session.send(&vec![u8::from(last); SMALL_BYTES]).await.expect("sent");
                    if last {
                        break;
                    }
                }
            } else {
                let mut sink = VecSink::new(32 << 20);
                session.recv_into(&mut sink).await.expect("received");
                assert_same(&sink.bytes, &message, &format!("round {number}"));
                received.store(number + 1, Ordering::SeqCst);
                let mut small = vec![0; SMALL_BYTES];
                while small[0] == 0 {
                    let n = session.recv(&mut small).await.expect("received");
                    assert!(n == SMALL_BYTES && small.iter().all(|b| *b == small[0]), "round {number}");
                }
            }
        }
        session
    };
    let client = async |session| close(side(session, Way::Up).await).await;
    let server = async |session| hear_close(side(session, Way::Down).await).await;
    play(&lab, &Config::default(), client, server, |lab, seen| {
        for (number, (way, rail)) in (0u32..).zip(rounds) {
            let id = seen.rails[*rail];
            let (from, to) = if *way == Way::Up { (&seen.client, &seen.server) } else { (&seen.server, &seen.client) };
            let begin = Seen::sent(from, id);
            until("the middle of the message", 10, seen, || Seen::sent(from, id) > begin + (2 << 20));
            lab.set_link(*rail, link).expect("the rail fails");
            assert_eq!(received.load(Ordering::SeqCst), number, "the message was there before the rail failed");
            let whole = until("the message", 20, seen, || received.load(Ordering::SeqCst) > number);
            lab.set_link(*rail, LinkState::Up).expect("the rail is back");
            let before = Seen::received(to, id);
            let again = until("the rail's use", 10, seen, || Seen::received(to, id) > before + (128 << 10));
            println!(
                "{way:?}, rail {rail} {link:?}: message there after {whole:?}, rail carries again after {again:?}"
            );
            back.store(number + 1, Ordering::SeqCst);
        }
    });
}

/// Packets are lost silently, in each direction, on the rail of the control connection and on the
/// other one.
#[test]
fn a_rail_that_is_cut_silently() {
    rail_fails_in_mid_message(LinkState::Cut, &[(Way::Up, 1), (Way::Down, 1), (Way::Up, 0)]);
}

/// The same when the hosts' ports lose the carrier.
#[test]
fn a_rail_whose_carrier_goes() {
    rail_fails_in_mid_message(LinkState::Down, &[(Way::Up, 1), (Way::Down, 0), (Way::Up, 0)]);
}

/// All rails fail for two seconds, within a message in each direction and before small ones: the
/// session survives.
#[test]
fn all_rails_cut_for_two_seconds() {
    let Some(lab) = lab(&["50mbit", "50mbit"]) else { return };
    let sizes = [6 << 20, 0, 17, 5000, 0, 300_000, 60_000];
    let client = async |mut session: Session| {
        let (out, input) = session.split();
        tokio::join!(send_all(out, 1, &sizes), receive_all(input, 2, &sizes));
        close(session).await;
    };
    let server = async |mut session: Session| {
        let (out, input) = session.split();
        tokio::join!(send_all(out, 2, &sizes), receive_all(input, 1, &sizes));
        hear_close(session).await;
    };
    play(&lab, &Config::default(), client, server, |lab, seen| {
        until("the middle of the messages", 10, seen, || {
            Seen::all_sent(&seen.client).min(Seen::all_sent(&seen.server)) > 2 << 20
        });
        lab.set_cut(0).unwrap();
        lab.set_cut(1).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        lab.set_up(0).unwrap();
        lab.set_up(1).unwrap();
    });
}

/// All rails stay down: both sides report it after the configured time.
#[test]
fn all_rails_lost_for_good() {
    let Some(lab) = lab(&["50mbit", "50mbit"]) else { return };
    let config = Config::new().give_up_after(Duration::from_secs(3));
    let message = vec![1; 64 << 20];
    let client = async |mut session: Session| {
        let error = session.send(&message).await.expect_err("no rail is left to send it");
        (error, session.send(b"more").await.expect_err("it is over"), Instant::now())
    };
    let server = async |mut session: Session| {
        let error = session.recv_into(&mut VecSink::new(64 << 20)).await.expect_err("no rail is left to receive it");
        (error, session.send(b"more").await.expect_err("it is over"), Instant::now())
    };
    let cut_at = std::sync::Mutex::new(Instant::now());
    let (client, server) = play(&lab, &config, client, server, |lab, seen| {
        until("the middle of the message", 10, seen, || Seen::all_sent(&seen.client) > 2 << 20);
        lab.set_cut(0).unwrap();
        lab.set_cut(1).unwrap();
        *cut_at.lock().unwrap() = Instant::now();
    });
    let cut_at = *cut_at.lock().unwrap();
    for (who, (first, later, when)) in [("client", client), ("server", server)] {
        println!("{who} after {:?}: {first}", when - cut_at);
        for error in [first, later] {
            assert!(matches!(error, Error::AllRailsLost(after) if after == config.give_up_after), "{who}: {error:?}");
        }
    }
}

/// Small messages, for which sending does not wait. Those in transit on the failed rail arrive on
/// the other, once and in order.
#[test]
fn small_messages_in_flight_when_a_rail_dies() {
    for_seeds(1, |seed| {
        for (strategy, link) in [(Strategy::Adaptive, LinkState::Cut), (Strategy::SharedCounter, LinkState::Down)] {
            let Some(lab) = lab(&["50mbit", "50mbit"]) else { return };
            let mut rng = Rng::new(seed);
            let sizes: Vec<usize> = (0..6000).map(|_| rng.below(2000).saturating_sub(100) as usize).collect();
            let client = async |mut session: Session| {
                send_all(session.split().0, 1, &sizes).await;
                close(session).await;
            };
            let server = async |mut session: Session| {
                receive_all(session.split().1, 1, &sizes).await;
                hear_close(session).await;
            };
            play(&lab, &Config::new().strategy(strategy), client, server, |lab, seen| {
                until("a good part of them", 10, seen, || Seen::all_sent(&seen.client) > 1 << 20);
                let busiest = (0..2).max_by_key(|r| Seen::sent(&seen.client, seen.rails[*r])).unwrap_or(0);
                lab.set_link(busiest, link).unwrap();
                println!("{strategy}: rail {busiest} {link:?} after {} bytes", Seen::all_sent(&seen.client));
            });
        }
    });
}

/// Rails fail and return at random while 200 messages go each way.
#[test]
fn random_failures_while_messages_go_both_ways() {
    for_seeds(1, |seed| {
        let Some(lab) = lab(&["100mbit", "50mbit"]) else { return };
        let mut rng = Rng::new(seed);
        let mut sizes = || -> Vec<usize> {
            let size = |rng: &mut Rng| match rng.below(4) {
                0 => rng.below(300) as usize,
                1 | 2 => rng.below(100_000) as usize,
                _ => rng.below((1 << 20) + 1) as usize,
            };
            (0..200).map(|_| size(&mut rng)).collect()
        };
        let (up, down) = (sizes(), sizes());
        let finished = AtomicU64::new(0);
        let client = async |mut session: Session| {
            let (out, input) = session.split();
            tokio::join!(send_all(out, 1, &up), receive_all(input, 2, &down));
            finished.fetch_add(1, Ordering::SeqCst);
            close(session).await;
        };
        let server = async |mut session: Session| {
            let (out, input) = session.split();
            tokio::join!(send_all(out, 2, &down), receive_all(input, 1, &up));
            finished.fetch_add(1, Ordering::SeqCst);
            hear_close(session).await;
        };
        play(&lab, &Config::default(), client, server, |lab, seen| {
            let begun = Instant::now();
            let mut failures = 0;
            while finished.load(Ordering::SeqCst) < 2 && begun.elapsed() < Duration::from_secs(HOST_SECONDS) {
                std::thread::sleep(Duration::from_millis(100 + rng.below(900)));
                let rail = rng.below(2) as usize;
                let link = if rng.below(2) == 0 { LinkState::Cut } else { LinkState::Down };
                lab.set_link(rail, link).unwrap();
                std::thread::sleep(Duration::from_millis(50 + rng.below(2500)));
                lab.set_link(rail, LinkState::Up).unwrap();
                failures += 1;
            }
            println!(
                "{failures} failures in {:?}; resent {} and {} bytes",
                begun.elapsed(),
                seen.client.stats().resent_bytes,
                seen.server.stats().resent_bytes
            );
        });
    });
}

/// Dropping a send within its message ends the session. From then on, both sides return that error.
#[test]
fn a_dropped_send_ends_the_session() {
    runtime().block_on(async {
        let (mut client, mut server, _listener) = pair(Config::default()).await;
        let message = pattern(1, 16 << 20);
        let dropped = tokio::time::timeout(Duration::from_millis(200), client.send(&message)).await;
        assert!(dropped.is_err(), "the message cannot complete: {dropped:?}");
        let again = [
            bounded("an answer", 5, client.send(b"more")).await,
            bounded("an answer", 5, client.recv(&mut [])).await.map(|_| ()),
            bounded("an answer", 5, client.close()).await,
        ];
        for error in again.map(Result::unwrap_err) {
            assert!(matches!(error, Error::Cancelled("send")), "{error:?}");
            assert!(error.to_string().contains("connect again"), "{error}");
        }
        let mut sink = VecSink::new(32 << 20);
        let told = bounded("the peer's end", 5, server.recv_into(&mut sink)).await.unwrap_err();
        assert!(matches!(&told, Error::Aborted(why) if why.contains("cancelled")), "{told:?}");
    });
}
