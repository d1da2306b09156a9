//! Peers that come in great number and say nothing, and peers that vanish: others are served, and files and memory last.

mod common;

use common::*;
use multirail::payload::VecSink;
use multirail::service::{self, Request, ServeConfig};
use multirail::session::ListenConfig;
use multirail::{Config, Error, Session, handshake};
use multirail_proto::wire::packet;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHILD: &str = "MULTIRAIL_TEST_CHILD";

/// The other process of the tests below.
#[test]
#[ignore = "the other process of tests in this file"]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (role, argument) = what.split_once(' ').unwrap_or((&what, ""));
    match role {
        "serve" => {
            let session = Config { token: Some(token()), give_up_after: Duration::from_secs(2), ..Config::default() };
            let listen = ListenConfig { address: "127.0.0.1:0".parse().unwrap(), insecure_no_token: false, session };
            let serving = service::serve(ServeConfig { listen, root: "/nonexistent".into() }, |address| {
                println!("\nlistening {address}");
                std::io::stdout().flush().unwrap();
            });
            runtime().block_on(serving).unwrap();
        }
        "send" => runtime().block_on(async {
            let mut session = Session::connect(argument, Config::default()).await.unwrap();
            let _ = session.send(&vec![7; 256 << 20]).await;
        }),
        other => panic!("no such role: {other}"),
    }
}

fn spawn_child(what: &str, max_files: Option<u64>) -> Child {
    let mut command = match max_files {
        None => Command::new(std::env::current_exe().unwrap()),
        Some(files) => {
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""))
                .arg(std::env::current_exe().unwrap());
            command
        }
    };
    let command = command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CHILD, what);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Ends the child with the test.
struct Served(Child, SocketAddr);

impl Served {
    fn start(max_files: Option<u64>) -> Self {
        let mut child = spawn_child("serve", max_files);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("listening ")?.parse().ok());
        Self(child, address.expect("the server tells where it listens"))
    }

    fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }

    /// Whether a client with the token is served: a message there and back.
    async fn is_served(&self) {
        let config = Config { token: Some(token()), ..Config::default() };
        let address = self.1.to_string();
        let connecting = Session::connect(&address, config);
        let mut session = bounded("a good client to be let in", 20, connecting).await.expect("let in");
        let echo = Request::Echo { message_bytes: 1000, rounds: 1, strategy: "adaptive".into(), fragment_bytes: 1 };
        let mut bytes = Vec::new();
        packet::encode(&echo, &mut bytes);
        session.send(&bytes[packet::PREFIX_BYTES..]).await.unwrap();
        let message = pattern(1, 1000);
        session.send(&message).await.unwrap();
        let mut back = vec![0; 1000];
        bounded("the echo", 10, session.recv(&mut back)).await.unwrap();
        assert_same(&back, &message, "an echo");
        session.close().await.unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thousand connections that never finish their handshake: each costs the server less than 16 KiB, a good client is served
/// beside them, and they are shown the door.
#[test]
fn a_thousand_half_open_connections_cost_little() {
    const CONNECTIONS: usize = 1000;
    allow_files(4096);
    let server = Served::start(Some(4096));
    runtime().block_on(async {
        server.is_served().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (before, files) = (server.rss_bytes(), server.open_files());
        let begun = Instant::now();
        let mut half_open = Vec::new();
        for number in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(server.1).await.unwrap();
            // Silent, or stuck in the first packet, or waiting where a proof is due.
            let hello = hello();
            let said = [&hello[..0], &hello[..3], &hello[..20], &hello[..]][number % 4];
            stream.write_all(said).await.unwrap();
            half_open.push(stream);
        }
        bounded("all of them to be accepted", 4, async {
            while server.open_files() < files + CONNECTIONS {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let each = (server.rss_bytes().saturating_sub(before)) / CONNECTIONS as u64;
        println!("{each} bytes a half-open connection, {CONNECTIONS} of them after {:?}", begun.elapsed());
        assert!(each < 16 << 10, "{each} bytes a connection");
        server.is_served().await;
        bounded("the door for all of them", 20, async {
            for mut stream in half_open {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
        })
        .await;
        println!("all shown the door after {:?}", begun.elapsed());
        server.is_served().await;
    });
}

/// A server whose files are used up by half-open connections shows the oldest of them the door: a good client is served.
#[test]
fn half_open_connections_do_not_use_up_a_servers_files() {
    const FILES: u64 = 100;
    let server = Served::start(Some(FILES));
    runtime().block_on(async {
        let mut half_open = Vec::new();
        for _ in 0..2 * FILES {
            half_open.push(TcpStream::connect(server.1).await.unwrap());
        }
        let begun = Instant::now();
        server.is_served().await;
        println!("a good client was served after {:?}", begun.elapsed());
        assert!(begun.elapsed() < handshake::TIMEOUT, "it had to wait until the others timed out");
    });
}

fn allow_files(count: u64) {
    // SAFETY: both calls get a valid rlimit.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(limit.rlim_cur.max(count));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// A sender that is killed in the middle of a message: the receiver says so after the time it was given, and others are served.
#[test]
fn a_peer_that_vanishes_in_mid_message_is_given_up() {
    runtime().block_on(async {
        let config = Config { give_up_after: Duration::from_secs(1), ..Config::default() };
        let mut listener = listen(config.clone()).await;
        let address = listener.address();
        let mut child = spawn_child(&format!("send {address}"), None);
        let mut server = accept(&mut listener).await;
        let watch = server.watch();
        let mut sink = VecSink::new(1 << 30);
        let killing = async {
            let received = || watch.rails().iter().map(|r| r.received_bytes).sum::<u64>();
            while received() < 1 << 20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            println!("killed after {} of {} bytes", received(), 256 << 20);
            Instant::now()
        };
        let (ended, killed) = bounded("an end", 30, async { tokio::join!(server.recv_into(&mut sink), killing) }).await;
        let error = ended.unwrap_err();
        println!("{:?} after the kill: {error}", killed.elapsed());
        assert!(matches!(error, Error::AllRailsLost(after) if after == Duration::from_secs(1)), "{error:?}");
        drop(server);
        let (good, mut host) =
            tokio::join!(async { Session::connect(&address.to_string(), config).await }, accept(&mut listener));
        bounded("a good client", 10, round_trip(&mut good.unwrap(), &mut host, 1, 10_000)).await;
    });
}
