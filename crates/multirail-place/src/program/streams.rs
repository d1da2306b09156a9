//! The list of streams, read by a second program that the kernel runs for each socket
//! (`bpf/streams.bpf.c`). aya cannot attach an iterator to a map; this module makes the two calls.

use super::layout::{self, StreamRecord};
use crate::{Error, Result};
use aya::programs::Iter;
use aya::{Btf, EbpfLoader};
use multirail_proto::placement::MAX_PORTS;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The object compiled from `bpf/streams.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/streams.bpf.o"));
/// Limit of the streams in a status, which is kept in memory.
pub(crate) const MAX_STREAMS: usize = 100_000;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// A stream of a program on this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamStatus {
    /// `tcp`, `udp`, or the number of another protocol.
    pub protocol: String,
    /// The address and port of this host.
    pub local: SocketAddr,
    /// The address and port of the other end.
    pub remote: SocketAddr,
    /// The port to which its last packet was given.
    pub port: u32,
    /// Whether it stays at that port.
    pub pinned: bool,
    /// Why its last packet was given to that port: `first-port`, `hash`, `round-robin`, `pinned`,
    /// `spread` or `earliest`.
    pub reason: &'static str,
    /// The ports that it may use, if the policy limits them.
    pub allowed_ports: Vec<u32>,
    /// Packets given to ports.
    pub packets: u64,
    /// Bytes given to ports.
    pub bytes: u64,
    /// Bytes that the program wrote and the other end has not acknowledged; 0 unless it is TCP.
    pub backlog_bytes: u32,
    /// How often a packet left by another port than the one before.
    pub port_changes: u64,
}

/// Lists the streams in `map`.
pub(crate) fn list(map: BorrowedFd<'_>) -> Result<Vec<StreamStatus>> {
    let btf = Btf::from_sys_fs().map_err(|e| Error::Btf(Box::new(e)))?;
    let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(Error::refused)?;
    let program = object.program_mut("list_streams").ok_or_else(|| Error::missing("list_streams"))?;
    let program: &mut Iter = program.try_into().map_err(|e: aya::programs::ProgramError| Error::refused(e))?;
    program.load("bpf_sk_storage_map", &btf).map_err(Error::refused)?;
    let program = program.fd().map_err(Error::refused)?.as_fd();
    let bytes = run(program, map).map_err(Error::io("listing streams"))?;
    // SAFETY: each chunk has the size of the struct, whose integers may have any value.
    let record = bytes
        .chunks_exact(size_of::<StreamRecord>())
        .map(|b| unsafe { b.as_ptr().cast::<StreamRecord>().read_unaligned() });
    Ok(record.filter_map(|record| record.status()).collect())
}

/// Runs the iterator and returns what it wrote.
fn run(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    /// Member `link_create` of the kernel's `union bpf_attr`, for an iterator.
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
    /// Member `iter_create`.
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
    file.take((MAX_STREAMS * size_of::<StreamRecord>()) as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a call of bpf(2) that returns a file descriptor.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes and what they point to outlive the call, and their size is correct.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

impl StreamRecord {
    fn status(&self) -> Option<StreamStatus> {
        let address = |bytes: &[u8; 16]| -> Option<IpAddr> {
            match i32::from(self.family) {
                libc::AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
                // A dual-stack socket has IPv4 addresses mapped to IPv6.
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
            port: self.state.port,
            pinned: self.state.pinned != 0,
            reason: reason_name(self.state.reason),
            allowed_ports: (0..MAX_PORTS as u32).filter(|port| self.state.allowed_ports >> port & 1 == 1).collect(),
            packets: self.state.packets,
            bytes: self.state.bytes,
            backlog_bytes: self.backlog_bytes,
            port_changes: self.state.port_changes,
        })
    }
}

/// The name of a reason of the program.
fn reason_name(reason: u64) -> &'static str {
    match u32::try_from(reason) {
        Ok(layout::REASON_FIRST_PORT) => "first-port",
        Ok(layout::REASON_HASH) => "hash",
        Ok(layout::REASON_ROUND_ROBIN) => "round-robin",
        Ok(layout::REASON_PINNED) => "pinned",
        Ok(layout::REASON_SPREAD) => "spread",
        Ok(layout::REASON_EARLIEST) => "earliest",
        _ => "unknown",
    }
}
