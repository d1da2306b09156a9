//! What the tests of labs share.

use multirail_lab::{Lab, Topology};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

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
