//! What the tests of labs share.

use multirail_lab::{Lab, Topology};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Long enough for any packet here; waited for only where a packet must not come, or a test fails.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// Whether labs can be made here. If not, says why the test is skipped.
pub fn supported() -> bool {
    match Lab::supported() {
        Ok(()) => true,
        Err(why) => {
            eprintln!("skipped: {why}");
            false
        }
    }
}

pub fn lab(hosts: &[&str], rails: &[&str]) -> Lab {
    Lab::temporary(&Topology::simple(hosts, rails).unwrap()).unwrap()
}

/// Hosts on one rail, of which `rail` is the TOML.
pub fn wan(hosts: &[&str], rail: &str) -> Lab {
    let hosts: String = hosts.iter().map(|host| format!("[[host]]\nname='{host}'\n")).collect();
    Lab::temporary(&Topology::from_toml(&format!("{hosts}[[rail]]\n{rail}\n")).unwrap()).unwrap()
}

/// The namespaces of a lab, as `ip netns list` would show them.
pub fn namespaces(lab: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&format!("mrlab-{lab}-"))).collect()
}

/// A UDP socket on a host that waits no longer than [`PATIENCE`].
pub fn socket(lab: &Lab, host: &str, address: impl Into<SocketAddr>) -> UdpSocket {
    let address = address.into();
    let socket = lab.run_in(host, || UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Whether a datagram sent on `from` reaches `to`.
pub fn reaches(from: &UdpSocket, to: &UdpSocket) -> bool {
    from.send_to(b"x", to.local_addr().unwrap()).is_ok() && to.recv(&mut [0; 16]).is_ok()
}

/// The same with patience: after a cut, address resolution is tried again only every second.
pub fn reaches_again(from: &UdpSocket, to: &UdpSocket) -> bool {
    (0..10).any(|_| reaches(from, to))
}

/// How fast TCP carries so many bytes, from the first byte that arrives to the last.
pub fn tcp_rate_mbit_s(lab: &Lab, rail: usize, from: &str, to: &str, bytes: usize) -> f64 {
    let to = (to, lab.address(to, rail).unwrap());
    tcp_rate_between_mbit_s(lab, from, to, bytes)
}

/// The same between two hosts with these addresses.
pub fn tcp_rate_between_mbit_s(lab: &Lab, from: &str, to: (&str, Ipv4Addr), bytes: usize) -> f64 {
    let listener = lab.run_in(to.0, || TcpListener::bind((to.1, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let mut sender = lab.run_in(from, || TcpStream::connect(address)).unwrap().unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&vec![0; bytes]).unwrap());
        let mut buffer = vec![0; 1 << 16];
        let first = receiver.read(&mut buffer).unwrap();
        let start = Instant::now();
        let mut received = first;
        while received < bytes {
            received += receiver.read(&mut buffer).unwrap();
        }
        (received - first) as f64 * 8.0 / 1e6 / start.elapsed().as_secs_f64()
    })
}
