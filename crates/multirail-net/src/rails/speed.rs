//! The link speed that an interface's hardware reports. It comes from `ETHTOOL_GLINKSETTINGS`,
//! which unlike `/sys` follows the namespace.

use socket2::{Domain, Socket, Type};
use std::os::fd::AsRawFd;

const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const SIOCETHTOOL: u32 = 0x8946;
/// `SPEED_UNKNOWN`, and its value when speeds had 16 bits.
const UNKNOWN: [u32; 2] = [u32::MAX, 0xffff];

/// A socket for the requests.
pub struct Speeds {
    socket: Option<Socket>,
}

impl Default for Speeds {
    fn default() -> Self {
        Self::new()
    }
}

impl Speeds {
    /// Speeds, none of which has been read yet.
    pub fn new() -> Speeds {
        Speeds { socket: Socket::new(Domain::IPV4, Type::DGRAM, None).ok() }
    }

    /// The speed in Mbit/s; 0 if the interface does not report it, as with most virtual hardware.
    pub fn mbit_s(&self, name: &str) -> u32 {
        self.ask(name).filter(|speed| !UNKNOWN.contains(speed)).unwrap_or(0)
    }

    fn ask(&self, name: &str) -> Option<u32> {
        let socket = self.socket.as_ref()?;
        let mut settings = LinkSettings { command: ETHTOOL_GLINKSETTINGS, ..LinkSettings::default() };
        // The first call only returns, negated, the number of words in the kernel's bitmaps.
        settings.call(socket, name)?;
        settings.mask_words = settings.mask_words.checked_neg().filter(|&words| words > 0)?;
        settings.command = ETHTOOL_GLINKSETTINGS;
        settings.call(socket, name)?;
        Some(settings.speed_mbit_s)
    }
}

/// `struct ethtool_link_settings` of linux/ethtool.h.
#[repr(C)]
struct LinkSettings {
    command: u32,
    speed_mbit_s: u32,
    /// Duplex, connector, PHY and so on.
    others: [u8; 7],
    mask_words: i8,
    more: [u8; 4],
    reserved: [u32; 7],
    /// Three bitmaps of `mask_words` each.
    masks: [u32; 3 * i8::MAX as usize],
}

impl Default for LinkSettings {
    fn default() -> Self {
        LinkSettings {
            command: 0,
            speed_mbit_s: 0,
            others: [0; 7],
            mask_words: 0,
            more: [0; 4],
            reserved: [0; 7],
            masks: [0; 3 * i8::MAX as usize],
        }
    }
}

impl LinkSettings {
    fn call(&mut self, socket: &Socket, name: &str) -> Option<()> {
        // SAFETY: all-zero bytes are a valid `ifreq`: arrays of integers and a union of such and
        // pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays zero and ends the name.
        let room = request.ifr_name.len() - 1;
        if name.len() > room {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = std::ptr::from_mut(self).cast();
        // SAFETY: the request names an interface and points to settings with room for the largest
        // bitmaps that `mask_words` can announce; the kernel writes no further, and both outlive
        // the call.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
        (result == 0).then_some(())
    }
}
