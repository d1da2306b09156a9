//! What is asked of a port by ioctl: its offloads, as `ethtool -K` would (the command may not be installed), and whether
//! it is ready. For ports in the namespace that the calling thread is in.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;

/// The kernel handles a change of carrier within a second.
const READY_TIMEOUT: Duration = Duration::from_secs(3);
const READY_POLL: Duration = Duration::from_millis(1);

/// Switches segmentation: off as shaping needs it, or on as a veth pair is born. GRO is off either way, as at birth:
/// it would put packets together again before a switch sends them on.
pub(crate) fn set_offloads_here(port: &str, on: bool) -> io::Result<()> {
    let socket = any_socket()?;
    for cmd in [ETHTOOL_STSO, ETHTOOL_SGSO] {
        ethtool(&socket, port, cmd, u32::from(on))?;
    }
    ethtool(&socket, port, ETHTOOL_SGRO, 0)
}

/// Waits until a port carries packets. A port whose peer has just come up has its carrier at once, but queues and sends
/// nothing, and has no IPv6, until the kernel has worked off the event.
pub(crate) fn wait_ready_here(port: &str) -> io::Result<()> {
    let socket = any_socket()?;
    let start = Instant::now();
    loop {
        let ready = is_running(&socket, port)?;
        // Newer kernels work the event off when asked. All wait here for who is just doing it, which may have set
        // the flag and not yet told IPv6.
        ethtool(&socket, port, ETHTOOL_GLINK, 0)?;
        if ready {
            return Ok(());
        }
        if start.elapsed() > READY_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{port} got no carrier")));
        }
        std::thread::sleep(READY_POLL);
    }
}

/// It only says which namespace is meant.
fn any_socket() -> io::Result<UdpSocket> {
    UdpSocket::bind(("0.0.0.0", 0))
}

fn is_running(socket: &UdpSocket, port: &str) -> io::Result<bool> {
    let mut request = request(port)?;
    // SAFETY: the request outlives the call, and has the layout of SIOCGIFFLAGS.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(i32::from(flags) & libc::IFF_RUNNING != 0)
}

/// `struct ethtool_value` of the kernel.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

fn ethtool(socket: &UdpSocket, port: &str, cmd: u32, data: u32) -> io::Result<()> {
    let mut value = EthtoolValue { cmd, data };
    let mut request = request(port)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request and the value that it points to outlive the call, and have the layout of SIOCETHTOOL.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub(crate) fn request(port: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which zero bytes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if port.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(port.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}
