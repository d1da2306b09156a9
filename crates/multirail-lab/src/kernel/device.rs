//! Operations on a port by ioctl: its offloads, as `ethtool -K` sets them, and whether it is ready.
//!
//! The lab does not run `ethtool`, because that command is often not installed.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;

/// How long to wait for a carrier. The kernel handles a change of carrier within a second.
const READY_TIMEOUT: Duration = Duration::from_secs(3);
const READY_POLL: Duration = Duration::from_millis(1);

/// Switches segmentation offloads off, as shaping needs it, or on, as in a new veth pair. GRO is
/// off in both cases, as in a new pair: it would merge packets before a switch forwards them.
pub(crate) fn set_offloads_here(port: &str, on: bool) -> io::Result<()> {
    let socket = namespace_socket()?;
    for cmd in [ETHTOOL_STSO, ETHTOOL_SGSO] {
        set_ethtool_value(&socket, port, cmd, u32::from(on))?;
    }
    set_ethtool_value(&socket, port, ETHTOOL_SGRO, 0)
}

/// Waits until a port carries packets.
///
/// A port whose peer has just come up has its carrier at once. But it queues and sends nothing, and
/// has no IPv6, until the kernel has handled the event.
pub(crate) fn wait_ready_here(port: &str) -> io::Result<()> {
    let socket = namespace_socket()?;
    let start = Instant::now();
    loop {
        let ready = is_running(&socket, port)?;
        // Recent kernels handle the event on this request. All kernels wait here for a handler that
        // is running, which may have set the flag and not yet told IPv6.
        set_ethtool_value(&socket, port, ETHTOOL_GLINK, 0)?;
        if ready {
            return Ok(());
        }
        if start.elapsed() > READY_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{port} got no carrier")));
        }
        std::thread::sleep(READY_POLL);
    }
}

/// A socket that identifies the namespace of the calling thread for an ioctl.
pub(super) fn namespace_socket() -> io::Result<UdpSocket> {
    UdpSocket::bind(("0.0.0.0", 0))
}

fn is_running(socket: &UdpSocket, port: &str) -> io::Result<bool> {
    let mut request = request(port)?;
    // SAFETY: SIOCGIFFLAGS takes a pointer to an ifreq, and the request outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the successful call has written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(i32::from(flags) & libc::IFF_RUNNING != 0)
}

/// `struct ethtool_value` of the kernel.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

fn set_ethtool_value(socket: &UdpSocket, port: &str, cmd: u32, data: u32) -> io::Result<()> {
    let mut value = EthtoolValue { cmd, data };
    // SAFETY: commands with one value take a `struct ethtool_value`, which has this layout.
    unsafe { ethtool(socket, port, (&raw mut value).cast()) }
}

/// Makes an ethtool request.
///
/// # Safety
/// `data` must point to the structure that its first field, the command, requires.
pub(super) unsafe fn ethtool(socket: &UdpSocket, port: &str, data: *mut libc::c_char) -> io::Result<()> {
    let mut request = request(port)?;
    request.ifr_ifru.ifru_data = data;
    // SAFETY: SIOCETHTOOL takes a pointer to an ifreq, which outlives the call. The caller
    // guarantees the structure that it points to.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// An interface request for a port, with all other fields zero.
pub(super) fn request(port: &str) -> io::Result<libc::ifreq> {
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
