//! Many connections a second: a client at another address is served, and one at the same address
//! where that is possible.
//!
//! The addresses of 127.0.0.0/8 are different sources.

mod common;

use common::*;
use multirail::Error;
use multirail::handshake::{Purpose, raw};
use multirail::session::{ListenConfig, Listener};
use multirail_lab::{Lab, Topology};
use multirail_testing::{Requirement, skip};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

async fn connect_from(local: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((local, 0).into())?;
    socket.connect(to).await
}

/// Listens in a thread of its own, so that a flood does not share a thread with the listener.
fn listen_beside() -> SocketAddr {
    let (ready, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let mut listener = listen(plaintext().token(token())).await;
            ready.send(listener.address()).unwrap();
            while listener.accept().await.is_ok() {}
        })
    });
    address.recv_timeout(Duration::from_secs(10)).expect("a listener")
}

/// A client is slow with its handshake, while another address opens more connections than the
/// server lets in, silent ones or ones with a greeting. The slow client gets in.
#[test]
fn a_flood_ends_no_connection_of_another_address() {
    allow_files(16_384);
    let address = listen_beside();
    runtime().block_on(async {
        for greeting in [vec![], hello()] {
            let mut slow = connect_from([127, 0, 0, 1], address).await.unwrap();
            let mut flood = Vec::new();
            for _ in 0..2200 {
                let mut stream = connect_from([127, 0, 0, 2], address).await.unwrap();
                let _ = stream.write_all(&greeting).await;
                flood.push(stream);
            }
            // Connections are accepted in their order, so the whole flood has been when this one is.
            let mut last = connect_from([127, 0, 0, 3], address).await.unwrap();
            raw::Session::open(&mut last, &plaintext().token(token()), Purpose::New).await.expect("let in");
            raw::Session::open(&mut slow, &plaintext().token(token()), Purpose::New).await.expect("let in");
        }
    });
}

/// The same from the address of the client, and the connections are silent: a client that greets
/// is let in, and none of the others is waited for.
#[test]
fn a_silent_flood_leaves_room_for_those_that_greet() {
    allow_files(16_384);
    let address = listen_beside();
    runtime().block_on(async {
        let mut flood = Vec::new();
        for _ in 0..4000 {
            flood.push(connect_from([127, 0, 0, 1], address).await.unwrap());
        }
        for _ in 0..20 {
            let mut client = connect_from([127, 0, 0, 1], address).await.unwrap();
            raw::Session::open(&mut client, &plaintext().token(token()), Purpose::New).await.expect("let in");
        }
    });
}

/// How a flood's connections behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    /// They are closed at once.
    Brief,
    /// They stay open and say nothing.
    Silent,
    /// They send a greeting and no proof, and stay open.
    Greeting,
}

/// Opens connections as fast as it can until `stop`; returns their number.
async fn flood(kind: Flood, to: SocketAddr, stop: Arc<AtomicBool>) -> u64 {
    let opened = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..1000)
        .map(|_| {
            let (opened, stop) = (opened.clone(), stop.clone());
            tokio::spawn(async move {
                let mut held = std::collections::VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    let Ok(Ok(mut stream)) = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(to)).await
                    else {
                        continue;
                    };
                    opened.fetch_add(1, Ordering::Relaxed);
                    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("linger");
                    if kind == Flood::Greeting {
                        let _ = stream.write_all(&hello()).await;
                    }
                    if kind != Flood::Brief {
                        held.push_back(stream);
                        if held.len() > 8 {
                            held.pop_front();
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        let _ = task.await;
    }
    opened.load(Ordering::Relaxed)
}

/// Measures how long a client at a round trip of 100 ms needs to get in during floods from another
/// address, and from its own.
#[test]
#[ignore = "a measurement; it takes half a minute"]
fn time_to_get_in_during_a_flood() {
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    allow_files(65_536);
    let text = "[[host]]\nname='server'\n[[host]]\nname='client'\n[[host]]\nname='flood'\n\
                [[rail]]\ndelay='50ms'\n[[rail]]\n";
    let lab = Lab::temporary(&Topology::from_toml(text).expect("a topology")).expect("a lab");
    let (ready, port) = std::sync::mpsc::channel();
    let lab = Arc::new(lab);
    let server = lab.clone();
    let done = Arc::new(AtomicBool::new(false));
    let ends = done.clone();
    let serving = std::thread::spawn(move || {
        let serve = move || {
            runtime().block_on(async {
                let listen = ListenConfig::new(([0, 0, 0, 0], 0), plaintext().token(token()));
                let mut listener = Listener::bind(listen).await.expect("a listener");
                ready.send(listener.address().port()).expect("the test waits for it");
                while !ends.load(Ordering::Relaxed) {
                    let _ = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
                }
            });
        };
        server.run_in("server", serve).expect("the server's part");
    });
    let port = port.recv_timeout(Duration::from_secs(10)).expect("a listener");
    let at = |rail| SocketAddr::from((IpAddr::from(lab.address("server", rail).expect("an address")), port));
    for (host, rail) in [("flood", 1), ("client", 0)] {
        for kind in [Flood::Brief, Flood::Silent, Flood::Greeting] {
            let stop = Arc::new(AtomicBool::new(false));
            std::thread::scope(|scope| {
                let (flood_stop, lab, to) = (stop.clone(), &lab, at(rail));
                let flooding = scope.spawn(move || {
                    let begun = Instant::now();
                    let run = || runtime().block_on(flood(kind, to, flood_stop));
                    lab.run_in(host, run).expect("the flood") as f64 / begun.elapsed().as_secs_f64()
                });
                std::thread::sleep(Duration::from_secs(1));
                let (lab, to) = (lab, at(0));
                let tried = scope.spawn(move || {
                    let attempt = || {
                        runtime().block_on(async {
                            let begun = Instant::now();
                            let mut stream = TcpStream::connect(to).await.map_err(|e| e.to_string())?;
                            let entered =
                                raw::Session::open(&mut stream, &plaintext().token(token()), Purpose::New).await;
                            entered.map(|_| begun.elapsed()).map_err(|e: Error| e.to_string())
                        })
                    };
                    lab.run_in("client", || (0..6).map(|_| attempt()).collect::<Vec<_>>()).expect("the client")
                });
                let tried = tried.join().expect("attempts");
                stop.store(true, Ordering::Relaxed);
                let a_second = flooding.join().expect("a flood");
                println!("{kind:?} connections from {host}, {a_second:.0} a second: {tried:?}");
            });
        }
    }
    done.store(true, Ordering::Relaxed);
    serving.join().expect("the server ends");
}
