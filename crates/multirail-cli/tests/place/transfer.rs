//! A transfer during which placement ends.

use crate::net::{Net, TIMEOUT, bytes_by_port};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

#[test]
fn a_transfer_completes_when_placement_ends() {
    let Some(net) = Net::new("down", &["h1", "h2"], 3) else { return };
    assert!(net.up_by_file("h1").status.success() && net.up_by_file("h2").status.success());
    let listener = net.lab.run_in("h2", || TcpListener::bind((net.address("h2"), 0)).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let mut sender = net.lab.run_in("h1", || TcpStream::connect(target).unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let (got, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let sending = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            let mut sent = 0;
            while !is_over.load(Relaxed) {
                sender.write_all(&[7; 1 << 16]).unwrap();
                sent += 1 << 16;
            }
            sent
        }
    });
    let receiving = std::thread::spawn({
        let got = got.clone();
        move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                match receiver.read(&mut buffer).unwrap() {
                    0 => break,
                    n => got.fetch_add(n as u64, Relaxed),
                };
            }
        }
    });
    let wait_for_more = |what: &str| {
        let (begun, before) = (Instant::now(), got.load(Relaxed));
        while got.load(Relaxed) < before + 2_000_000 {
            assert!(begun.elapsed() < TIMEOUT, "nothing arrives {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for_more("before");
    assert!(bytes_by_port(&net.status("h1")).iter().all(|&bytes| bytes > 100_000));
    for host in ["h1", "h2"] {
        assert!(net.place(host, &["down"]).status.success());
        wait_for_more(&format!("after {host} is down"));
    }
    is_over.store(true, Relaxed);
    let sent = sending.join().unwrap();
    receiving.join().unwrap();
    assert_eq!(got.load(Relaxed), sent);
}
