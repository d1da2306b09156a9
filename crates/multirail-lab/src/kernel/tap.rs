//! TAP devices: ports whose packets a process reads and writes.

use crate::kernel::device;
use crate::spec::rate::Rate;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
/// Checksums, and TCP segmentation for IPv4 and IPv6. ECN segmentation stays off, so the kernel
/// itself segments packets with an ECN echo.
const OFFLOADS: libc::c_ulong = 0x1 | 0x2 | 0x4;
const ETHTOOL_SSET: u32 = 2;
const FULL_DUPLEX: u8 = 1;
/// The speed that a port without a rate reports.
const SPEED_DEFAULT_MBIT_S: u64 = 10_000;

/// Creates a TAP device. The kernel removes it when the last copy of the descriptor is closed.
pub(crate) fn create_here(name: &str) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut request = device::request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF takes a pointer to an ifreq, and the request outlives the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: TUNSETOFFLOAD takes a number and no pointer.
    if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD as _, OFFLOADS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file.into())
}

/// `struct ethtool_cmd` of the kernel.
#[repr(C)]
#[derive(Default)]
struct EthtoolCmd {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    port: u8,
    phy_address: u8,
    transceiver: u8,
    autoneg: u8,
    mdio_support: u8,
    maxtxpkt: u32,
    maxrxpkt: u32,
    speed_hi: u16,
    eth_tp_mdix: u8,
    eth_tp_mdix_ctrl: u8,
    lp_advertising: u32,
    reserved: [u32; 2],
}

/// Sets the speed that a TAP device reports. Some programs divide their traffic by it.
pub(crate) fn set_speed_here(port: &str, rate: Option<Rate>) -> io::Result<()> {
    let mbit_s = rate.map_or(SPEED_DEFAULT_MBIT_S, |rate| (rate.bit_s() / 1_000_000).max(1));
    let (speed, speed_hi) = (mbit_s as u16, (mbit_s >> 16) as u16);
    let mut cmd = EthtoolCmd { cmd: ETHTOOL_SSET, speed, speed_hi, duplex: FULL_DUPLEX, ..EthtoolCmd::default() };
    let socket = device::namespace_socket()?;
    // SAFETY: ETHTOOL_SSET takes a `struct ethtool_cmd`, which has this layout.
    unsafe { device::ethtool(&socket, port, (&raw mut cmd).cast()) }
}
