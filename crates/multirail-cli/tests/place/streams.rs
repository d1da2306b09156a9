//! The list of streams in the status.

use crate::net::{MULTIRAIL, Net};
use multirail_testing::{Requirement, skip};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

#[test]
fn streams_are_listed_and_prometheus_text_is_printed() {
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

/// Connections from h1 to h2, by each of which both ends have sent a byte. The end at h2 is closed,
/// because a process may not open enough files for both ends.
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
fn ten_thousand_streams_are_listed_until_they_end() {
    const MANY: usize = 10_000;
    /// Files of other tests are included.
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
        return skip(Requirement::OpenFiles, format!("this process may not open {FILES} files"));
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
    // As many again, a thousand at a time.
    for _ in 0..MANY / 1_000 {
        drop(connections(&net, 1_000));
    }
    for host in ["h1", "h2"] {
        net.wait(host, "without streams", |status| count(status) == 0);
    }
}
