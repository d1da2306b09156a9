//! Edges between two real processes of one host, one of which is killed in the middle.

use multirail::service::{self, Edge, ServeConfig};
use multirail::session::ListenConfig;
use multirail::transport::connect::{Dial, connect};
use multirail::transport::{Bell, Connection, DEFAULT_LIMIT_BYTES, HEAD_BYTES, Message, Transport, next};
use multirail::{Config, Error, Result, Token};
use multirail_lab::{Lab, Topology};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the process for [`a_process_for_the_other_tests`] shall do.
const ROLE: &str = "MULTIRAIL_TEST_ROLE";
/// Nothing here takes longer, unless it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(20);
const MESSAGE_BYTES: usize = 3 << 20;

/// Mappings of this process are counted: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn config() -> Config {
    Config { token: Some(Token::new(b"what both know")), ..Config::default() }
}

/// Serves for ever.
fn serve(ready: impl FnOnce(std::net::SocketAddr)) {
    serve_at([127, 0, 0, 1], ready);
}

fn serve_at(address: [u8; 4], ready: impl FnOnce(std::net::SocketAddr)) {
    let listen = ListenConfig { address: (address, 0).into(), insecure_no_token: false, session: config() };
    let config = ServeConfig { listen, root: std::env::temp_dir() };
    service::block_on(service::serve(config, ready)).unwrap();
}

fn dial(host: &str, transport: Option<Transport>) -> (Box<dyn Connection>, Arc<Bell>) {
    let bell = Bell::new().unwrap();
    let (config, edge) = (config(), Edge::Measure.encode());
    let limit_bytes = DEFAULT_LIMIT_BYTES;
    let connection = connect(Dial { host, config: &config, edge: &edge, transport, bell: &bell, limit_bytes }).unwrap();
    (connection, bell)
}

fn turn(connection: &mut Box<dyn Connection>, bell: &Bell) -> Result<Message> {
    connection.push(Message { head: [7; HEAD_BYTES], body: vec![5; MESSAGE_BYTES].into() });
    Ok(next(bell, connection, Some(Instant::now() + HANGS_AFTER))?.expect("nothing happens"))
}

/// This test's program again, in a role of its own; it ends when its stdin does, so never later than this process.
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
            let (mut connection, bell) = dial(host, None);
            assert_eq!(connection.transport(), Transport::Shm);
            turn(&mut connection, &bell).unwrap();
            println!("says: going");
            loop {
                turn(&mut connection, &bell).unwrap();
            }
        }
        _ => serve(|address| println!("says: {address}")),
    }
}

#[test]
fn a_receiver_that_is_killed_is_an_error_of_its_sender() {
    lose_the_receiver(Transport::Shm);
}

#[cfg(feature = "ucx")]
#[test]
fn a_receiver_that_is_killed_is_an_error_of_its_sender_over_ucx() {
    lose_the_receiver(Transport::Ucx);
}

fn lose_the_receiver(transport: Transport) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut server, address) = process("serve");
    let (mut connection, bell) = dial(&address, Some(transport));
    for _ in 0..3 {
        assert_eq!(turn(&mut connection, &bell).unwrap().body.len(), MESSAGE_BYTES);
    }
    // In the middle of a message: it does not fit the ring.
    connection.push(Message { head: [7; HEAD_BYTES], body: vec![5; MESSAGE_BYTES].into() });
    connection.flush().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let error = turn(&mut connection, &bell).expect_err("nobody is there");
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn a_sender_that_is_killed_leaves_nothing_with_its_receiver() {
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
fn an_edge_between_two_hosts_is_striped_by_itself() {
    if let Err(why) = Lab::supported() {
        println!("skipped: {why}");
        return;
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
            let (mut connection, bell) = dial(&host, asked);
            assert_eq!(connection.transport(), chosen);
            assert_eq!(turn(&mut connection, &bell).unwrap().body.len(), MESSAGE_BYTES);
        }
        let (bell, config, edge) = (Bell::new().unwrap(), config(), Edge::Measure.encode());
        let limit_bytes = DEFAULT_LIMIT_BYTES;
        let transport = Some(Transport::Shm);
        let refused = connect(Dial { host: &host, config: &config, edge: &edge, transport, bell: &bell, limit_bytes });
        let why = refused.expect_err("they share no memory").to_string();
        assert!(why.contains("not on one machine"), "{why}");
    })
    .unwrap();
}

/// Whatever a sender was about when it died: nothing, a short message, the middle of a long one.
#[cfg(feature = "ucx")]
#[test]
fn a_sender_that_is_killed_is_an_error_of_its_receiver_over_ucx() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for bytes in [None, Some(100), Some(MESSAGE_BYTES)] {
        let (mut server, address) = process("serve");
        let (mut connection, bell) = dial(&address, Some(Transport::Ucx));
        turn(&mut connection, &bell).unwrap();
        if let Some(bytes) = bytes {
            // What comes back is not taken until the sender of it is dead.
            connection.push(Message { head: [7; HEAD_BYTES], body: vec![5; bytes].into() });
            connection.flush().unwrap();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        let end = Instant::now() + HANGS_AFTER;
        // What it sent back before it died comes first.
        let error = loop {
            match next(&bell, &mut connection, Some(end)) {
                Err(error) => break error,
                Ok(message) => assert!(message.is_some(), "nothing happens"),
            }
        };
        assert!(matches!(error, Error::Io { .. }), "{error}");
        drop(connection);
        assert!(Instant::now() < end, "closing takes too long");
    }
}
