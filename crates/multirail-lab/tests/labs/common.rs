//! Helpers of the tests of labs.

use multirail_lab::{Lab, Topology};
use multirail_testing::{Requirement, skip};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How long a socket waits for a packet that must arrive. Only a test that fails waits so long.
pub const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a socket waits for a packet that must not arrive.
const SILENCE: Duration = Duration::from_millis(200);

/// Whether labs can be created here. If not, reports the test as skipped.
pub fn supported() -> bool {
    match Lab::supported() {
        Ok(()) => true,
        Err(why) => {
            skip(Requirement::Namespaces, why);
            false
        }
    }
}

pub fn lab(hosts: &[&str], rails: &[&str]) -> Lab {
    Lab::temporary(&Topology::simple(hosts, rails).unwrap()).unwrap()
}

/// A lab of hosts on one rail, which is given as TOML.
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

/// A UDP socket on a host that waits for [`RECEIVE_TIMEOUT`].
pub fn socket(lab: &Lab, host: &str, address: impl Into<SocketAddr>) -> UdpSocket {
    let address = address.into();
    let socket = lab.run_in(host, || UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
    socket
}

/// Whether a datagram of one byte, sent on `from`, reaches `to` before `to` has heard nothing for
/// `silence`.
fn arrives(from: &UdpSocket, to: &UdpSocket, silence: Duration) -> bool {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    // Its own number, since an earlier datagram may be late.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    to.set_read_timeout(Some(silence)).unwrap();
    let mut heard = [0];
    let has_come = from.send_to(&[number], to.local_addr().unwrap()).is_ok()
        && std::iter::from_fn(|| to.recv(&mut heard).is_ok().then_some(heard[0])).any(|got| got == number);
    to.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
    has_come
}

/// Whether a datagram sent on `from` reaches `to`.
pub fn reaches(from: &UdpSocket, to: &UdpSocket) -> bool {
    arrives(from, to, RECEIVE_TIMEOUT)
}

/// Whether a datagram sent on `from` does not reach `to`.
pub fn is_cut_off(from: &UdpSocket, to: &UdpSocket) -> bool {
    !arrives(from, to, SILENCE)
}

/// Whether one of several datagrams reaches `to`. After a cut, the kernel repeats address
/// resolution only every second.
pub fn reaches_again(from: &UdpSocket, to: &UdpSocket) -> bool {
    let start = Instant::now();
    std::iter::repeat_with(|| arrives(from, to, SILENCE)).find(|came| *came || start.elapsed() > RECEIVE_TIMEOUT)
        == Some(true)
}

/// Asserts that a measured time is never below `least`, and below `most` at least once.
///
/// A busy machine makes times longer, so the time is measured again until it is short enough.
#[track_caller]
pub fn assert_time_ms(what: &str, least: f64, most: f64, mut measure_ms: impl FnMut() -> f64) {
    let start = Instant::now();
    loop {
        let found = measure_ms();
        assert!(found >= least, "{what}: {found} ms, less than {least} ms");
        if found < most {
            return;
        }
        assert!(start.elapsed() < RECEIVE_TIMEOUT, "{what}: {found} ms, never below {most} ms");
    }
}

/// Asserts that TCP's rate between two addresses is never above `most`, and at least once above
/// `least`, in Mbit/s.
#[track_caller]
pub fn assert_rate_mbit_s(lab: &Lab, from: &str, to: (&str, Ipv4Addr), bytes: usize, least: f64, most: f64) {
    let start = Instant::now();
    loop {
        let found = tcp_rate_mbit_s(lab, from, to, bytes);
        assert!(found <= most, "{from} to {}: {found} Mbit/s, more than {most}", to.0);
        if found > least {
            return;
        }
        assert!(start.elapsed() < RECEIVE_TIMEOUT, "{from} to {}: {found} Mbit/s, never above {least}", to.0);
    }
}

/// How fast TCP carries this many bytes, from the first write to the last read: other load can only
/// make it slower.
pub fn tcp_rate_mbit_s(lab: &Lab, from: &str, to: (&str, Ipv4Addr), bytes: usize) -> f64 {
    let listener = lab.run_in(to.0, || TcpListener::bind((to.1, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let mut sender = lab.run_in(from, || TcpStream::connect(address)).unwrap().unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&vec![0; bytes]).unwrap());
        let mut buffer = vec![0; 1 << 16];
        let mut received = 0;
        while received < bytes {
            received += receiver.read(&mut buffer).unwrap();
        }
    });
    bytes as f64 * 8.0 / 1e6 / start.elapsed().as_secs_f64()
}
