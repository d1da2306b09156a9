//! Edges between two processes of one host, one of which is killed during a transfer.

use multirail::bench::BENCH_EDGE;
use multirail::pipeline::edge::connect::{Dial, connect};
use multirail::pipeline::edge::{Connection, DEFAULT_LIMIT_BYTES, HEADER_BYTES, Message, Notifier, Transport, next};
use multirail::runtime;
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Config, Error, Result, Token};
use multirail_lab::{Lab, Topology};
use multirail_testing::{Requirement, skip};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The role of the process [`a_process_for_the_other_tests`].
const ROLE: &str = "MULTIRAIL_TEST_ROLE";
/// The time limit of a step; longer means that it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(20);
const MESSAGE_BYTES: usize = 3 << 20;

/// Mappings of this process are counted: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn config() -> Config {
    Config::new().token(Token::new(b"what both know"))
}

/// Serves until the process ends.
fn serve(ready: impl FnOnce(std::net::SocketAddr)) {
    serve_at([127, 0, 0, 1], ready);
}

fn serve_at(address: [u8; 4], ready: impl FnOnce(std::net::SocketAddr)) {
    let listen = ListenConfig::new((address, 0), config());
    runtime::block_on(Server::new(listen, std::env::temp_dir()).serve(ready)).unwrap();
}

fn dial(host: &str, transport: Option<Transport>) -> (Box<dyn Connection>, Arc<Notifier>) {
    let notifier = Notifier::new().unwrap();
    let config = config();
    let limit_bytes = DEFAULT_LIMIT_BYTES;
    let connection = connect(Dial {
        host,
        config: &config,
        protocol: BENCH_EDGE,
        edge: &[],
        transport,
        notifier: &notifier,
        limit_bytes,
    })
    .unwrap();
    (connection, notifier)
}

fn turn(connection: &mut Box<dyn Connection>, notifier: &Notifier) -> Result<Message> {
    connection.push(Message { head: [7; HEADER_BYTES], body: vec![5; MESSAGE_BYTES].into() });
    Ok(next(notifier, connection, Some(Instant::now() + HANGS_AFTER))?.expect("nothing happens"))
}

/// Starts this test's program in another role. It ends at the end of its stdin, so never later
/// than this process.
fn process(role: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_for_the_other_tests", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.map_while(|l| l.ok()).find_map(|l| l.split_once("says: ").map(|(_, said)| said.to_owned()));
    (child, said.expect("the process says something"))
}

#[test]
fn a_process_for_the_other_tests() {
    let Ok(role) = std::env::var(ROLE) else { return };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match role.split_once(' ') {
        Some(("send-to", host)) => {
            let (mut connection, notifier) = dial(host, None);
            assert_eq!(connection.transport(), Transport::Shm);
            turn(&mut connection, &notifier).unwrap();
            println!("says: going");
            loop {
                turn(&mut connection, &notifier).unwrap();
            }
        }
        _ => serve(|address| println!("says: {address}")),
    }
}

#[test]
fn a_killed_receiver_is_an_error_of_its_sender() {
    lose_the_receiver(Transport::Shm);
}

#[test]
fn a_killed_receiver_is_an_error_of_its_ucx_sender() {
    if !cfg!(feature = "ucx") {
        return skip(Requirement::Ucx, "this build has no feature `ucx`");
    }
    lose_the_receiver(Transport::Ucx);
}

fn lose_the_receiver(transport: Transport) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut server, address) = process("serve");
    let (mut connection, notifier) = dial(&address, Some(transport));
    for _ in 0..3 {
        assert_eq!(turn(&mut connection, &notifier).unwrap().body.len(), MESSAGE_BYTES);
    }
    // In the middle of a message: it does not fit the ring.
    connection.push(Message { head: [7; HEADER_BYTES], body: vec![5; MESSAGE_BYTES].into() });
    connection.flush().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let error = turn(&mut connection, &notifier).expect_err("nothing listens there");
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn a_killed_sender_leaves_nothing_with_its_receiver() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || serve(|address| tell.send(address).unwrap()));
    let address = told.recv().unwrap();
    let rings = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:multirail ring").count();
    let (mut sender, _) = process(&format!("send-to {address}"));
    assert_eq!(rings(), 1);
    sender.kill().unwrap();
    sender.wait().unwrap();
    let end = Instant::now() + HANGS_AFTER;
    while rings() != 0 {
        assert!(Instant::now() < end, "the receiver does not notice");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_edge_between_two_hosts_is_striped_by_default() {
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    let lab = Lab::temporary(&Topology::simple(&["a", "b"], &["200mbit", "200mbit"]).unwrap()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let host_b = lab.address("b", 0).unwrap();
    lab.run_in("b", || {
        // The thread stays on host b. It serves for as long as this process lives.
        std::thread::spawn(move || serve_at([0, 0, 0, 0], |address| tell.send(address.port()).unwrap()));
    })
    .unwrap();
    let host = format!("{host_b}:{}", told.recv().unwrap());
    lab.run_in("a", || {
        for (asked, chosen) in [(None, Transport::Striped), (Some(Transport::Tcp), Transport::Tcp)] {
            let (mut connection, notifier) = dial(&host, asked);
            assert_eq!(connection.transport(), chosen);
            assert_eq!(turn(&mut connection, &notifier).unwrap().body.len(), MESSAGE_BYTES);
        }
        let (notifier, config) = (Notifier::new().unwrap(), config());
        let limit_bytes = DEFAULT_LIMIT_BYTES;
        let transport = Some(Transport::Shm);
        let refused = connect(Dial {
            host: &host,
            config: &config,
            protocol: BENCH_EDGE,
            edge: &[],
            transport,
            notifier: &notifier,
            limit_bytes,
        });
        let why = refused.expect_err("they share no memory").to_string();
        assert!(why.contains("not on one machine"), "{why}");
    })
    .unwrap();
}

/// A sender dies without a message, with a short message, or within a long one.
#[test]
fn a_killed_sender_is_an_error_of_its_ucx_receiver() {
    if !cfg!(feature = "ucx") {
        return skip(Requirement::Ucx, "this build has no feature `ucx`");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for bytes in [None, Some(100), Some(MESSAGE_BYTES)] {
        let (mut server, address) = process("serve");
        let (mut connection, notifier) = dial(&address, Some(Transport::Ucx));
        turn(&mut connection, &notifier).unwrap();
        if let Some(bytes) = bytes {
            // The reply is not received until its sender is dead.
            connection.push(Message { head: [7; HEADER_BYTES], body: vec![5; bytes].into() });
            connection.flush().unwrap();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        let end = Instant::now() + HANGS_AFTER;
        // Its replies from before its death arrive first.
        let error = loop {
            match next(&notifier, &mut connection, Some(end)) {
                Err(error) => break error,
                Ok(message) => assert!(message.is_some(), "nothing happens"),
            }
        };
        assert!(matches!(error, Error::Io { .. }), "{error}");
        drop(connection);
        assert!(Instant::now() < end, "closing takes too long");
    }
}
