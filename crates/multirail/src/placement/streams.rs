//! What the program keeps of single streams: read by a second program, which the kernel runs for each socket (`bpf/streams.bpf.c`). aya cannot
//! attach an iterator to a map; the two calls for it are here.

use super::layout::Stream;
use super::{Error, Result};
use aya::programs::Iter;
use aya::{Btf, EbpfLoader};
use multirail_proto::placement::MAX_PORTS;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Compiled from `bpf/streams.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/streams.bpf.o"));
/// More are not shown: a status is for people and monitors, and is kept in memory.
pub const MAX_STREAMS: usize = 100_000;
/// In the order of `enum why` in `bpf/place.h`.
const WHY: [&str; 6] = ["first-port", "hash", "turn", "pinned", "spread", "least-worked"];
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// A stream of a program on this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamStatus {
    /// `tcp`, `udp`, or the protocol's number.
    pub protocol: String,
    /// This host's address and port.
    pub local: SocketAddr,
    /// The other's.
    pub remote: SocketAddr,
    /// The port that it was last given to.
    pub port: u32,
    /// Whether it stays there.
    pub pinned: bool,
    /// Why it was given to that port.
    pub why: &'static str,
    /// Ports that it may use, where the policy says so.
    pub may_use: Vec<u32>,
    /// Packets given to ports.
    pub packets: u64,
    /// Bytes given to ports.
    pub bytes: u64,
    /// Bytes of TCP that the other has not confirmed.
    pub backlog_bytes: u32,
    /// How often it went from one port to another.
    pub moves: u64,
}

/// `struct listed`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Listed {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
    family: u16,
    protocol: u16,
    backlog_bytes: u32,
    pad: u32,
    stream: Stream,
}

/// All streams that are kept in `map`.
pub(super) fn list(map: BorrowedFd<'_>) -> Result<Vec<StreamStatus>> {
    let refused = |e: &dyn std::error::Error| Error::Refused(super::program::chain(e));
    let btf = Btf::from_sys_fs().map_err(|e| Error::Btf(e.to_string()))?;
    let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(|e| refused(&e))?;
    let program =
        object.program_mut("list_streams").ok_or_else(|| Error::OtherVersion("it has no list_streams".into()))?;
    let program: &mut Iter = program.try_into().map_err(|e: aya::programs::ProgramError| refused(&e))?;
    program.load("bpf_sk_storage_map", &btf).map_err(|e| refused(&e))?;
    let program = program.fd().map_err(|e| refused(&e))?.as_fd();
    let bytes = run(program, map).map_err(Error::io("listing streams"))?;
    // SAFETY: plain integers, of which any bytes are valid, and as many of them as are read.
    let listed =
        bytes.chunks_exact(size_of::<Listed>()).map(|b| unsafe { b.as_ptr().cast::<Listed>().read_unaligned() });
    Ok(listed.filter_map(|listed| listed.status()).collect())
}

/// What the iterator writes.
fn run(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    /// `link_create` of `union bpf_attr`, for an iterator.
    #[repr(C)]
    struct LinkCreate {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
        iter_info: u64,
        iter_info_bytes: u32,
        pad: u32,
    }
    /// `iter_create`.
    #[repr(C)]
    struct IterCreate {
        link: u32,
        flags: u32,
    }
    let map_fd = map.as_raw_fd() as u32;
    let link = LinkCreate {
        program: program.as_raw_fd() as u32,
        target: 0,
        attach_type: BPF_TRACE_ITER,
        flags: 0,
        iter_info: (&raw const map_fd) as u64,
        iter_info_bytes: size_of_val(&map_fd) as u32,
        pad: 0,
    };
    let link = bpf(BPF_LINK_CREATE, &link)?;
    let iter = IterCreate { link: link.as_raw_fd() as u32, flags: 0 };
    let file = File::from(bpf(BPF_ITER_CREATE, &iter)?);
    let mut bytes = Vec::new();
    file.take((MAX_STREAMS * size_of::<Listed>()) as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A call that gives a file descriptor.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes and what they point to outlive the call, which is told their size.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it to us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

impl Listed {
    fn status(&self) -> Option<StreamStatus> {
        let address = |bytes: &[u8; 16]| -> Option<IpAddr> {
            match i32::from(self.family) {
                libc::AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
                // A socket for both has IPv4 addresses in IPv6's clothes.
                libc::AF_INET6 => Some(Ipv6Addr::from(*bytes).to_canonical()),
                _ => None,
            }
        };
        let protocol = match i32::from(self.protocol) {
            libc::IPPROTO_TCP => "tcp".to_owned(),
            libc::IPPROTO_UDP => "udp".to_owned(),
            number => number.to_string(),
        };
        Some(StreamStatus {
            protocol,
            local: SocketAddr::new(address(&self.local)?, self.local_port),
            remote: SocketAddr::new(address(&self.remote)?, self.remote_port),
            port: self.stream.port,
            pinned: self.stream.pinned != 0,
            why: WHY.get(self.stream.why as usize).copied().unwrap_or("unknown"),
            may_use: (0..MAX_PORTS as u32).filter(|port| self.stream.ports >> port & 1 == 1).collect(),
            packets: self.stream.packets,
            bytes: self.stream.bytes,
            backlog_bytes: self.backlog_bytes,
            moves: self.stream.moves,
        })
    }
}
