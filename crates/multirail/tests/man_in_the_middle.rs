//! A host in the middle of one rail or of all of them, on a network of three hosts: the client's packets
//! to the server go to it, as after ARP spoofing, and it passes on what it likes.

mod common;

use common::proxy::{Change, proxy};
use common::*;
use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Error, Identity, KnownHosts, Session};
use multirail_lab::{Lab, Topology};
use multirail_testing::{Requirement, for_seeds, skip};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// The server's port, at the address that it has and at the one that the host in the middle takes.
const PORT: u16 = 7717;
/// Where only the host in the middle reaches the server.
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// A hardware address that no host has.
const UNUSED: &str = "02:00:00:00:00:01";

/// Runs `ip` on a host.
fn ip(lab: &Lab, host: &str, arguments: &str) -> String {
    let output = lab.command(host, "ip").unwrap().args(arguments.split_whitespace()).output().expect("ip");
    assert!(output.status.success(), "{host}: ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn hardware_address(lab: &Lab, host: &str, port: &str) -> String {
    let shown = ip(lab, host, &format!("-o link show dev {port}"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).expect("an Ethernet port").to_owned()
}

/// Three hosts on two rails: `a` dials `b`, and `m` is in the middle of these rails.
fn network(intercepted: &[usize]) -> Option<Lab> {
    if let Err(why) = Lab::supported() {
        skip(Requirement::Namespaces, why);
        return None;
    }
    let topology = Topology::simple(&["a", "b", "m"], &["200mbit", "200mbit"]).expect("a topology");
    let lab = Lab::temporary(&topology).expect("a lab");
    ip(&lab, "b", &format!("address add {BEHIND}/32 dev lo"));
    for rail in 0..2 {
        // The server tells the client this address, too.
        ip(
            &lab,
            "a",
            &format!("neighbour replace {BEHIND} lladdr {UNUSED} dev {} nud permanent", lab.port(rail).unwrap()),
        );
    }
    for rail in intercepted {
        let (port, server) = (lab.port(*rail).unwrap(), lab.address("b", *rail).unwrap());
        // The client takes the host in the middle for the server, and that accepts what is for the server.
        let middle = hardware_address(&lab, "m", &port);
        ip(&lab, "a", &format!("neighbour replace {server} lladdr {middle} dev {port} nud permanent"));
        ip(&lab, "m", &format!("address add {server}/32 dev lo"));
        ip(&lab, "m", &format!("route replace {BEHIND}/32 dev {port}"));
        let server = hardware_address(&lab, "b", &port);
        ip(&lab, "m", &format!("neighbour replace {BEHIND} lladdr {server} dev {port} nud permanent"));
    }
    Some(lab)
}

/// Runs a server on `b`, the proxy on `m`, and a client on `a` until the client has ended.
fn play<T: Send>(
    lab: &Lab,
    server: impl AsyncFnMut(Session) + Send,
    server_config: &Config,
    change: impl FnOnce() -> Box<Change> + Send,
    client: impl AsyncFnOnce(String) -> T + Send,
) -> T {
    let (ready, is_ready) = mpsc::channel();
    let (end_server, server_ends) = oneshot::channel::<()>();
    let (end_middle, middle_ends) = oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let (listening, config, mut serve) = (ready.clone(), server_config.clone(), server);
        scope.spawn(move || {
            let part = async move || {
                let mut listener =
                    Listener::bind(ListenConfig::new(([0, 0, 0, 0], PORT), config)).await.expect("a listener");
                listening.send(()).expect("the test waits for it");
                let serving = async {
                    while let Ok(accepted) = listener.accept().await {
                        if let Accepted::Session(new) = accepted {
                            serve(new.start()).await;
                        }
                    }
                };
                tokio::select! {
                    () = serving => unreachable!("the listener ended"),
                    _ = server_ends => {}
                }
            };
            lab.run_in("b", move || runtime().block_on(part())).expect("host b");
        });
        scope.spawn(move || {
            let part = async move || {
                let listener = tokio::net::TcpListener::bind(("0.0.0.0", PORT)).await.expect("a listener");
                ready.send(()).expect("the test waits for it");
                tokio::select! {
                    () = proxy(listener, SocketAddr::from((BEHIND, PORT)), Rc::new(RefCell::new(change()))) => {
                        unreachable!("the proxy ended")
                    }
                    _ = middle_ends => {}
                }
            };
            lab.run_in("m", move || runtime().block_on(part())).expect("host m");
        });
        // Dropped in any case, so that the other two end also when the client fails.
        let _ends = (end_server, end_middle);
        for _ in 0..2 {
            is_ready.recv_timeout(Duration::from_secs(10)).expect("both listen");
        }
        let host = format!("{}:{PORT}", lab.address("b", 0).expect("an address"));
        lab.run_in("a", move || runtime().block_on(bounded("the client's part", 60, client(host)))).expect("host a")
    })
}

/// Returns every message, until the client closes.
async fn echo(mut session: Session) {
    let mut message = vec![0; 8 << 20];
    while let Ok(length) = session.recv(&mut message).await {
        if session.send(&message[..length]).await.is_err() {
            return;
        }
    }
    let _ = session.close().await;
}

/// Sends messages of 4 MiB there and back, and compares.
async fn there_and_back(session: &mut Session, messages: u64) {
    let mut got = vec![0; 4 << 20];
    for number in 0..messages {
        let message = pattern(number, 4 << 20);
        session.send(&message).await.expect("sent");
        let length = session.recv(&mut got).await.expect("received");
        assert_same(&got[..length], &message, &format!("message {number}"));
    }
}

/// What the host in the middle does to a piece now and then.
#[derive(Debug, Clone, Copy)]
enum Tampering {
    FlipABit,
    SendTwice,
    LeaveOut,
    /// Sends what some connection sent before.
    Replay,
}

/// Does `tampering` to a piece about once in a MiB, and counts how often.
fn now_and_then(tampering: Tampering, seed: u64, count: Arc<AtomicU64>) -> Box<Change> {
    let mut rng = Rng::new(seed);
    let mut left = 1 + rng.below(1 << 20) as usize;
    let mut recorded = Vec::new();
    Box::new(move |_, _, _, bytes| {
        if left >= bytes.len() {
            left -= bytes.len();
            recorded.clone_from(bytes);
            return;
        }
        match tampering {
            Tampering::FlipABit => bytes[left] ^= 1 << rng.below(8),
            Tampering::SendTwice => bytes.extend_from_within(..),
            Tampering::LeaveOut => bytes.clear(),
            Tampering::Replay => bytes.clone_from(&recorded),
        }
        left = 1 + rng.below(1 << 20) as usize;
        count.fetch_add(1, Ordering::Relaxed);
    })
}

#[test]
fn a_host_in_the_middle_of_one_rail_changes_no_message() {
    let Some(lab) = network(&[1]) else { return };
    for_seeds(1, |seed| {
        for tampering in [Tampering::FlipABit, Tampering::SendTwice, Tampering::LeaveOut, Tampering::Replay] {
            let count = Arc::new(AtomicU64::new(0));
            let config = Config::new().token(token());
            let client = async |host: String| {
                let mut session = Session::connect(&host, config.clone()).await.expect("a session");
                // A host that holds back a part of a record stops its rail, and the session waits.
                let exchange = there_and_back(&mut session, 3);
                if tokio::time::timeout(Duration::from_secs(10), exchange).await.is_err() {
                    println!("{tampering:?}: the rail was stopped");
                    return;
                }
                session.close().await.expect("closed");
            };
            play(&lab, echo, &config, || now_and_then(tampering, seed, count.clone()), client);
            let count = count.load(Ordering::Relaxed);
            println!("{tampering:?}: {count} times");
            assert!(count > 0, "nothing went through the host in the middle");
        }
    });
}

/// What the client sent on each connection.
type Recording = Arc<Mutex<Vec<Vec<u8>>>>;

fn record(recording: Recording) -> Box<Change> {
    Box::new(move |number, is_up, _, bytes| {
        let mut recording = recording.lock().unwrap();
        if is_up {
            let connections = recording.len().max(number + 1);
            recording.resize(connections, Vec::new());
            recording[number].extend_from_slice(bytes);
        }
    })
}

/// Sends what was recorded to the server, and returns how many bytes it answers before it ends the connection.
fn replay(recorded: &[u8]) -> usize {
    let mut stream = TcpStream::connect((BEHIND, PORT)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may close before it has read all.
    let _ = stream.write_all(recorded);
    let (mut answer, mut buffer) = (0, [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return answer,
            Ok(length) => answer += length,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return answer,
            Err(error) => panic!("the server goes on with a replayed connection: {error}"),
        }
    }
}

#[test]
fn a_recording_of_all_rails_tells_nothing_and_is_of_no_use() {
    let Some(lab) = network(&[0, 1]) else { return };
    let recording = Recording::default();
    let config = Config::new().token(token());
    let secret = b"a secret of sixteen and more bytes".repeat(100_000);
    let client = async |host: String| {
        let mut session = Session::connect(&host, config.clone()).await.expect("a session");
        session.send(&secret).await.expect("sent");
        let mut got = vec![0; secret.len()];
        assert_eq!(session.recv(&mut got).await.expect("received"), secret.len());
        assert_eq!(got, secret);
        let connections = recording.lock().unwrap().clone();
        assert!(connections.len() >= 3, "a control connection and a channel on each rail");
        assert!(connections.iter().map(Vec::len).sum::<usize>() > secret.len(), "all of it was recorded");
        for recorded in &connections {
            assert!(!recorded.windows(16).any(|window| window == &secret[..16]), "it can be read");
        }
        // The session exists, and the recording has its id.
        let channels = session.rails().len();
        for recorded in &connections {
            let answer = lab.run_in("m", || replay(recorded)).expect("host m");
            assert!(answer < 4096, "{answer} bytes for one who has no key");
        }
        there_and_back(&mut session, 1).await;
        assert_eq!(session.rails().len(), channels);
        session.close().await.expect("closed");
    };
    play(&lab, echo, &config, || record(recording.clone()), client);
}

#[test]
fn a_redirect_to_another_server_with_the_same_token_is_noticed() {
    let Some(lab) = network(&[0]) else { return };
    let (server, other) = (Identity::generate(), Identity::generate());
    let config = Config::new().token(token()).identity(other.clone());
    let client = async |host: String| {
        let known = KnownHosts::default().with(&host, server.public_key());
        let refused = Session::connect(&host, Config::new().token(token()).known_hosts(known)).await;
        match refused {
            Err(Error::HostChanged { key, .. }) => assert_eq!(key, other.public_key()),
            other => panic!("{other:?}"),
        }
    };
    play(&lab, echo, &config, || Box::new(|_, _, _, _| {}), client);
}
