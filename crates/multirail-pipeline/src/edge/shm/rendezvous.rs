//! How two processes of one host come to share memory.
//!
//! ```text
//! client                                server
//!                            (TCP)  <-   MeetingPoint: a secret name and key
//!   key, rings, notifier            ->   checks the process, the key and the rings
//!                                   <-   its notifier
//! ```
//!
//! Descriptors travel over a Unix socket. It stays open, so that each side notices when the other
//! one ends.

use super::connection::{RING_BYTES, Shm};
use super::ring::Memory;
use crate::edge::notifier::Notifier;
use serde::{Deserialize, Serialize};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// How long one side waits for the other. Both are connected already.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most descriptors in one packet.
const MAX_FDS: usize = 3;
/// Room for their control message.
const MAX_CONTROL_BYTES: usize = 64;

/// Identifies a kernel and a network namespace. Two processes with equal values can share memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineId {
    boot: String,
    network: (u64, u64),
}

impl MachineId {
    /// The identity for this thread; `None` if it cannot be determined.
    pub(crate) fn here() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let network = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
        Some(Self { boot: boot.trim().to_owned(), network: (network.dev(), network.ino()) })
    }
}

/// Where the server waits. The key authenticates the client, since all users can read the name in
/// `/proc/net/unix`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MeetingPoint {
    name: [u8; 16],
    key: [u8; 16],
}

/// The server's side, waiting for the client.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    listener: UnixListener,
    point: MeetingPoint,
}

impl Rendezvous {
    pub(crate) fn open() -> io::Result<Self> {
        let point = MeetingPoint { name: random()?, key: random()? };
        let listener = UnixListener::bind_addr(&address(&point)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, point })
    }

    /// What the client must be told.
    pub(crate) fn point(&self) -> &MeetingPoint {
        &self.point
    }

    /// Accepts the client, which must have connected by now.
    pub(crate) fn accept(self, notifier: &Arc<Notifier>, limit_bytes: u64) -> io::Result<Shm> {
        let (stream, _) = self.listener.accept()?;
        prepare(&stream)?;
        let mut packet = [0; 24];
        let fds = receive(&stream, &mut packet)?;
        let (key, ring_bytes) = packet.split_at(16);
        let Ok([rings, memory, event]) = <[OwnedFd; 3]>::try_from(fds) else {
            return Err(io::Error::other("the peer did not send its rings and its notifier"));
        };
        if key != self.point.key {
            return Err(io::Error::other("the client has the wrong key"));
        }
        let ring_bytes = u64::from_le_bytes(ring_bytes.try_into().expect("eight bytes"));
        let rings = Memory::of_peer(&rings, ring_bytes)?;
        let theirs = Notifier::of_peer(memory, event)?;
        send(&stream, &[0], &notifier.fds())?;
        Shm::new(&rings, false, theirs, stream, limit_bytes)
    }
}

/// The client's side, after it has connected.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    rings: Arc<Memory>,
}

impl Client {
    pub(crate) fn connect(point: &MeetingPoint, notifier: &Arc<Notifier>) -> io::Result<Self> {
        let stream = UnixStream::connect_addr(&address(point)?)?;
        prepare(&stream)?;
        let (rings, file) = Memory::new(RING_BYTES)?;
        let mut packet = [0; 24];
        packet[..16].copy_from_slice(&point.key);
        packet[16..].copy_from_slice(&(RING_BYTES as u64).to_le_bytes());
        let [memory, event] = notifier.fds();
        send(&stream, &packet, &[file.as_fd(), memory, event])?;
        Ok(Self { stream, rings })
    }

    /// Finishes the connection, after the server has accepted it.
    pub(crate) fn finish(self, limit_bytes: u64) -> io::Result<Shm> {
        let fds = receive(&self.stream, &mut [0])?;
        let Ok([memory, event]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(io::Error::other("the server did not send its notifier"));
        };
        Shm::new(&self.rings, true, Notifier::of_peer(memory, event)?, self.stream, limit_bytes)
    }
}

fn address(point: &MeetingPoint) -> io::Result<SocketAddr> {
    let mut name = b"multirail-".to_vec();
    name.extend(point.name.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
    SocketAddr::from_abstract_name(name)
}

/// Sets time-outs, and refuses a process of another user other than root.
fn prepare(stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a valid structure of this length.
    let got = unsafe {
        let into = (&raw mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &mut length)
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call that cannot fail.
    let own = unsafe { libc::geteuid() };
    if peer.uid != own && peer.uid != 0 {
        return Err(io::Error::other(format!(
            "the peer's process belongs to user {}, this one to user {own}",
            peer.uid
        )));
    }
    Ok(())
}

fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let raw_bytes = size_of_val(raw.as_slice()) as libc::c_uint;
    let mut control = Control::default();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = control.message(&mut part);
    // SAFETY: the control buffer has room for MAX_FDS descriptors, and is aligned.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(raw_bytes) as _;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(raw_bytes) as _;
        std::ptr::copy_nonoverlapping(raw.as_ptr().cast(), libc::CMSG_DATA(header), raw_bytes as usize);
    }
    // SAFETY: all that `message` points to is valid.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// One packet of exactly this length, and the descriptors with it.
fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let mut control = Control::default();
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = control.message(&mut part);
    // SAFETY: all that `message` points to is valid.
    let got = unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the control buffer; every descriptor in it belongs to this
    // process now.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                fds.extend((0..count).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 || fds.len() > MAX_FDS {
        return Err(io::Error::other("more descriptors than expected"));
    }
    if got != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(fds)
}

/// Room for descriptors beside a packet.
#[repr(C, align(16))]
struct Control([MaybeUninit<u8>; MAX_CONTROL_BYTES]);

impl Default for Control {
    fn default() -> Self {
        Self([MaybeUninit::zeroed(); MAX_CONTROL_BYTES])
    }
}

impl Control {
    fn message(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: all zeros is a valid header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_control = self.0.as_mut_ptr().cast();
        message.msg_controllen = MAX_CONTROL_BYTES as _;
        message
    }
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
