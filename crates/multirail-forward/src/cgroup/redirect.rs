//! The BPF program that redirects connections, and its maps.

use super::error::CgroupError;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::{CgroupAttachMode, CgroupSockAddr, Program, ProgramError, SockOps};
use aya::{Btf, Ebpf, EbpfLoader};
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The object compiled from `bpf/redirect.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/redirect.bpf.o"));
const PROGRAMS: [&str; 5] = ["connect4", "connect6", "connected", "getpeername4", "getpeername6"];

/// `struct endpoint`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Endpoint {
    address: [u8; 16],
    port: [u8; 4],
}

/// `struct relay`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Relay {
    netns: u64,
    port4: [u8; 4],
    port6: [u8; 4],
}

// SAFETY: both consist of integers without padding, and any bytes are valid values.
unsafe impl aya::Pod for Endpoint {}
// SAFETY: as above.
unsafe impl aya::Pod for Relay {}

/// The program, attached to a cgroup for as long as this value or its process lives.
#[derive(Debug)]
pub(super) struct Redirect {
    hosts: Mutex<HashMap<MapData, [u8; 16], u8>>,
    established: Mutex<HashMap<MapData, Endpoint, Endpoint>>,
    /// Has the links that keep the program attached.
    _object: Ebpf,
}

impl Redirect {
    /// Attaches the program. Connections are redirected to the relay's `ports` for IPv4 and IPv6, when
    /// there are hosts.
    pub(super) fn attach(cgroup: &File, ports: [u16; 2]) -> Result<Self, CgroupError> {
        let btf = Btf::from_sys_fs().ok();
        let mut object = EbpfLoader::new().btf(btf.as_ref()).load(OBJECT).map_err(refused)?;
        let [port4, port6] = ports.map(in_network_order);
        let relay = Relay { netns: own_netns()?, port4, port6 };
        let map = object.map_mut("relay").ok_or_else(missing)?;
        Array::<_, Relay>::try_from(map).map_err(refused)?.set(0, relay, 0).map_err(refused)?;
        let hosts = object.take_map("hosts").ok_or_else(missing)?;
        let established = object.take_map("established").ok_or_else(missing)?;
        for name in PROGRAMS {
            attach(object.program_mut(name).ok_or_else(missing)?, cgroup).map_err(refused)?;
        }
        Ok(Self {
            hosts: Mutex::new(HashMap::try_from(hosts).map_err(refused)?),
            established: Mutex::new(HashMap::try_from(established).map_err(refused)?),
            _object: object,
        })
    }

    /// Redirects connections to this host from now on.
    pub(super) fn add_host(&self, address: IpAddr) -> Result<(), CgroupError> {
        lock(&self.hosts).insert(mapped(address), 1, 0).map_err(refused)
    }

    /// Leaves connections to this host as they are from now on.
    pub(super) fn remove_host(&self, address: IpAddr) {
        let _ = lock(&self.hosts).remove(&mapped(address));
    }

    /// The target of the connection that has come from `own`.
    pub(super) fn take_target(&self, own: SocketAddr) -> Option<SocketAddr> {
        let mut established = lock(&self.established);
        let own = Endpoint { address: mapped(own.ip()), port: in_network_order(own.port()) };
        let target = established.get(&own, 0).ok()?;
        let _ = established.remove(&own);
        let address = IpAddr::V6(Ipv6Addr::from(target.address)).to_canonical();
        Some(SocketAddr::new(address, u16::from_be_bytes([target.port[0], target.port[1]])))
    }
}

/// Attaches a program by a link, beside others of the cgroup: links have no other mode, and no flag for
/// this one.
fn attach(program: &mut Program, cgroup: &File) -> Result<(), ProgramError> {
    match program {
        Program::SockOps(program) => {
            let program: &mut SockOps = program;
            program.load()?;
            program.attach(cgroup, CgroupAttachMode::Single)?;
        }
        other => {
            let program: &mut CgroupSockAddr = other.try_into()?;
            program.load()?;
            program.attach(cgroup, CgroupAttachMode::Single)?;
        }
    }
    Ok(())
}

/// The address as the program has it.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A port as the program has it: the kernel's 32 bits have it in the lower half. All architectures that
/// this crate knows are little-endian.
fn in_network_order(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

/// The number of this process's network namespace.
fn own_netns() -> Result<u64, CgroupError> {
    let socket = std::net::UdpSocket::bind("[::]:0").or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))?;
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: both pointers are valid for their types, and the kernel writes at most `length` bytes.
    let failed = unsafe {
        let to = (&raw mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, to, &raw mut length)
    };
    if failed == 0 { Ok(cookie) } else { Err(CgroupError::OldKernel) }
}

/// The kernel's own words, which the loader's error has as its source.
fn refused(error: impl std::error::Error) -> CgroupError {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    CgroupError::Refused(text)
}

fn missing() -> CgroupError {
    CgroupError::Refused("the object lacks a program or a map".to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
