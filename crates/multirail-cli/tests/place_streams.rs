//! `multirail place` between hosts of a lab: which ports it finds, and what becomes of the streams that use them.

mod net;

use multirail_lab::LinkState;
use net::{MULTIRAIL, Net, PATIENCE, bytes_by_port, usable_ports};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

#[test]
fn hosts_find_each_other_and_leave_out_ports_that_fail() {
    let Some(net) = Net::new("found", &["h1", "h2", "h3"], 3) else { return };
    assert!(net.up_by_exchange("h1").status.success());
    // A host alone, and one with another token, are nobody's peers.
    fs::write(net.dir.join("other"), "another token").unwrap();
    assert!(net.place("h3", &["up", "--ports", &net.names("h3"), "--token-file", &net.path("other")]).status.success());
    net.wait("h1", "counting forged hellos", |status| status["exchange"]["forged"].as_u64() > Some(0));
    assert_eq!(usable_ports(&net.status("h1")), [] as [u64; 0]);
    assert!(net.up_by_exchange("h2").status.success());
    let all = |status: &Value| usable_ports(status) == [0, 1, 2];
    net.wait("h1", "with all ports", all);
    let status = net.wait("h2", "with all ports", all);
    let macs: Vec<String> = net.ports("h1").into_iter().map(|(_, mac)| mac).collect();
    assert_eq!(status["peers"][0]["macs"], serde_json::json!(macs));
    // Anybody may shout: nothing comes of it.
    assert!(net.place("h3", &["down"]).status.success());
    std::thread::sleep(Duration::from_secs(2));
    let shout = r#"
import socket, os
for port in ("eth0", "eth1", "eth2"):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((port, 0))
    for size in (1, 46, 200, 1300, 1490):
        s.send(b"\xff" * 6 + bytes([2, 9, 9, 9, 9, 9]) + b"\x88\xb5" + b"mrpl\x01" + os.urandom(size - 1))
"#;
    // What was heard before is counted by now: it is written down once a second.
    let before = net.status("h1")["exchange"]["forged"].as_u64().unwrap();
    assert!(net.lab.command("h3", "python3").unwrap().args(["-c", shout]).status().unwrap().success());
    net.wait("h1", "counting them", |status| status["exchange"]["forged"].as_u64() > Some(before + 14));
    // The cable of one port is pulled, seen by one host only.
    net.lab.set_port_link("h2", 1, LinkState::Down).unwrap();
    let without = |status: &Value| usable_ports(status) == [0, 2];
    let status = net.wait("h2", "without its port", without);
    assert_eq!(status["ports"][1]["why_not"], "it has no carrier");
    net.wait("h1", "without that port", without);
    net.transfer("h1", "h2", net.address("h2"), 500_000);
    net.lab.set_port_link("h2", 1, LinkState::Up).unwrap();
    net.wait("h1", "with all ports again", all);
    net.wait("h2", "with all ports again", all);
    // A switch loses everything silently.
    net.lab.set_port_link("h1", 2, LinkState::Cut).unwrap();
    let without = |status: &Value| usable_ports(status) == [0, 1];
    net.wait("h1", "without the silent port", without);
    net.wait("h2", "without the silent port", without);
    net.lab.set_port_link("h1", 2, LinkState::Up).unwrap();
    net.wait("h1", "with all ports again", all);
    // A host that ends says so: plain service by the first port.
    assert!(net.place("h2", &["down"]).status.success());
    net.wait("h1", "alone", |status| usable_ports(status).is_empty());
    net.transfer("h1", "h2", net.address("h2"), 500_000);
}

#[test]
fn streams_are_listed_and_monitors_have_their_text() {
    let Some(net) = Net::new("streams", &["h1", "h2"], 2) else { return };
    assert!(net.up_by_file("h1").status.success() && net.up_by_file("h2").status.success());
    let listener = net.lab.run_in("h2", || TcpListener::bind((net.address("h2"), 0)).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let mut stream = net.lab.run_in("h1", || TcpStream::connect(target).unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(&[7; 200_000]).unwrap();
    accepted.read_exact(&mut [0; 200_000]).unwrap();
    let status = net.status("h1");
    let local = stream.local_addr().unwrap().to_string();
    let listed = status["streams"].as_array().unwrap().iter().find(|listed| listed["local"] == local.as_str());
    let listed = listed.unwrap_or_else(|| panic!("{local} is not in {status:#}"));
    assert_eq!(
        (listed["remote"].as_str(), listed["protocol"].as_str()),
        (Some(target.to_string().as_str()), Some("tcp"))
    );
    assert!(listed["bytes"].as_u64() > Some(200_000), "{listed}");
    let text = net.run("h1", Command::new(MULTIRAIL).args(["place", "status"]));
    assert!(String::from_utf8_lossy(&text.stdout).contains(&format!("tcp {local} -> {target}: ")), "{text:?}");
    let prometheus = net.place("h1", &["status", "--prometheus"]);
    let prometheus = String::from_utf8(prometheus.stdout).unwrap();
    assert!(prometheus.contains("# TYPE multirail_place_port_bytes_total counter\n"), "{prometheus}");
    for line in prometheus.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("multirail_place_") && name.ends_with('}') && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(prometheus.contains("multirail_place_port_usable{port=\"eth1\",number=\"1\"} 1\n"), "{prometheus}");
}

/// Connections from h1 to h2, of which each end has sent a byte, and h2 has closed its own: not every process may open files for both ends.
fn connections(net: &Net, count: usize) -> Vec<TcpStream> {
    let listener = net.lab.run_in("h2", || TcpListener::bind((net.address("h2"), 0)).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(&[7]).unwrap();
        }
    });
    let connect = || {
        let mut stream = TcpStream::connect(target).unwrap();
        stream.write_all(&[7]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let open = net.lab.run_in("h1", || (0..count).map(|_| connect()).collect()).unwrap();
    answering.join().unwrap();
    open
}

#[test]
fn ten_thousand_streams_are_kept_and_nothing_of_those_that_end() {
    const MANY: usize = 10_000;
    /// With those of other tests.
    const FILES: libc::rlim_t = MANY as libc::rlim_t + 1_000;
    let Some(net) = Net::new("many", &["h1", "h2"], 3) else { return };
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for both calls.
    let may = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files);
        files.rlim_cur = FILES.max(files.rlim_cur);
        files.rlim_max = files.rlim_cur.max(files.rlim_max);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) == 0
    };
    if !may {
        let _ = writeln!(std::io::stderr(), "skipped: this process may not open {FILES} files");
        return;
    }
    assert!(net.up_by_file("h1").status.success() && net.up_by_file("h2").status.success());
    let count = |status: &Value| status["streams"].as_array().unwrap().len();
    let open = connections(&net, MANY);
    let status = net.status("h1");
    assert_eq!(count(&status), MANY);
    let remote = format!("{}:", net.address("h2"));
    for stream in status["streams"].as_array().unwrap() {
        let is_right = stream["remote"].as_str().unwrap().starts_with(&remote) && stream["port"].as_u64().unwrap() < 3;
        assert!(is_right, "{stream}");
    }
    drop(open);
    net.wait("h1", "without streams", |status| count(status) == 0);
    // As many again that come and go, a thousand at a time.
    for _ in 0..MANY / 1_000 {
        drop(connections(&net, 1_000));
    }
    for host in ["h1", "h2"] {
        net.wait(host, "without streams", |status| count(status) == 0);
    }
}

#[test]
fn what_is_under_way_arrives_when_placement_ends() {
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
            assert!(begun.elapsed() < PATIENCE, "nothing arrives {what}");
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
