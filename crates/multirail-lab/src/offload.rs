//! Switching a port's segmentation offloads, by the ioctl that `ethtool -K` uses: the command may not be installed.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value` of the kernel.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// Switches TSO, GSO and GRO of a port in the namespace that the calling thread is in.
pub(crate) fn set_here(port: &str, on: bool) -> io::Result<()> {
    // Any socket does: it only says which namespace.
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    for cmd in [ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO] {
        let mut value = EthtoolValue { cmd, data: u32::from(on) };
        // SAFETY: ifreq is plain data, for which zero bytes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if port.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(port.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request and the value that it points to outlive the call, and have the layout of SIOCETHTOOL.
        if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
