//! One TCP connection as a channel sees it: non-blocking vectored reads and writes, and what the kernel knows of the path.

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Sent bytes that nobody acknowledges for this long mean that the rail is dead. Twice the largest round trip and queue of
/// a sane path; short enough to be re-sent within the two seconds that a user notices.
pub const DEAD_AFTER: Duration = Duration::from_millis(1500);
/// Unanswered questions for the peer's window, beside [`DEAD_AFTER`], that mean the same.
const DEAD_PROBES: u8 = 3;
/// Unsent bytes kept in a new channel's socket before its rate is known.
pub const INITIAL_UNSENT_BYTES: u32 = 64 << 10;

/// The least time after which the kernel sends again what nobody acknowledged; it adds the round trip. Where the last packets of a
/// burst find a queue full, nothing that comes later tells of it, and Linux would wait for 200 ms.
const RESEND_AFTER: Duration = Duration::from_millis(50);
/// The kernel does not wait longer for something to send its acknowledgement with, so that the peer does not send again for nothing.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(25);
/// Not in libc yet: `include/uapi/linux/tcp.h`, since Linux 6.15.
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// What the kernel knows of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct PathInfo {
    /// Whether the kernel still keeps the connection: false once it timed out or was reset, or while the peer does not
    /// answer the questions whether its window is open again.
    pub alive: bool,
    /// The peer has ended the connection, which nobody notices who does not read.
    pub ended: bool,
    /// The peer's window is closed: its application takes nothing for now.
    pub window_closed: bool,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Smallest round trip seen.
    pub min_rtt_us: u32,
    /// The rate at which the kernel last saw bytes acknowledged; while there was little to send, less than the path's.
    pub delivery_bytes_s: f64,
    /// Time during which the receiver's window or the socket's own buffer was the limit, ever.
    pub window_limited_us: u64,
    /// Segments sent a second time, ever.
    pub resent_segments: u64,
    /// Time during which there was something to send, ever.
    pub busy_us: u64,
}

/// A connected TCP socket registered with the runtime in which it was made.
#[derive(Debug)]
pub struct ChannelSocket {
    fd: AsyncFd<TcpStream>,
    patient: Cell<bool>,
}

impl ChannelSocket {
    /// Takes over a connected stream.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_user_timeout(Some(DEAD_AFTER))?;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(Duration::from_secs(2))
                .with_interval(Duration::from_secs(1))
                .with_retries(3),
        )?;
        for (option, time) in [(TCP_RTO_MIN_US, RESEND_AFTER), (TCP_DELACK_MAX_US, ACKNOWLEDGE_WITHIN)] {
            // Older kernels know neither.
            let _ = set_option(&stream, option, time.as_micros() as libc::c_int);
        }
        // SAFETY: the stream owns its descriptor and never changes or closes it before it is dropped.
        let this = Self { fd: unsafe { AsyncFd::register(stream) }?, patient: Cell::new(false) };
        this.set_unsent_limit(INITIAL_UNSENT_BYTES)?;
        Ok(this)
    }

    /// The same socket, registered with the runtime that calls.
    pub(crate) fn moved(self) -> io::Result<Self> {
        let stream = self.fd.into_inner();
        // SAFETY: as in `new`.
        Ok(Self { fd: unsafe { AsyncFd::register(stream) }?, patient: self.patient })
    }

    /// Writes what the socket takes of `parts`. `Pending` means that it takes nothing now and will wake the task; the
    /// caller goes on until then.
    pub fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let want: usize = parts.iter().map(|p| p.len()).sum();
        loop {
            let mut guard = ready!(self.fd.poll_write_ready(cx))?;
            match SockRef::from(self.fd.get_ref()).send_vectored_with_flags(parts, libc::MSG_NOSIGNAL) {
                Ok(n) => {
                    if n < want {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Whether the socket takes bytes now; if not, it will wake the task.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.fd.poll_write_ready(cx).map(|_| ())
    }

    /// Reads what has arrived into `parts`; 0 is the end of the stream. `Pending` as in [`Self::poll_write`].
    pub fn poll_read(&self, cx: &mut Context<'_>, parts: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        let want: usize = parts.iter().map(|p| p.len()).sum();
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            match self.fd.get_ref().read_vectored(parts) {
                Ok(n) => {
                    // A short read has emptied the socket: the next one would only say so. The end of the stream
                    // stays readable.
                    if n < want && n > 0 {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// As [`Self::poll_read`], asking the socket itself instead of waiting to be told: for a receiver that spins.
    pub fn read_now(&self, parts: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        match self.fd.get_ref().read_vectored(parts) {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Poll::Pending,
            done => Poll::Ready(done),
        }
    }

    /// Bytes that have arrived and were not read.
    pub fn unread_bytes(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int to the pointer, which is valid for that.
        let ok = unsafe { libc::ioctl(self.fd.get_ref().as_raw_fd(), libc::FIONREAD, &mut bytes) };
        if ok == 0 { bytes.max(0) as u64 } else { 0 }
    }

    /// Has the socket count as readable when this much has arrived (`SO_RCVLOWAT`), or it ends, or its buffer is full.
    pub fn set_wake_up(&self, bytes: u32) -> io::Result<()> {
        let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the option takes one int, which the pointer is to.
        let failed = unsafe {
            let fd = self.fd.get_ref().as_raw_fd();
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), size)
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes written and not acknowledged by the peer's kernel.
    pub fn unacknowledged_bytes(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ (SIOCOUTQ on a TCP socket) writes one int to the pointer, which is valid for that.
        let ok = unsafe { libc::ioctl(self.fd.get_ref().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        if ok == 0 { bytes.max(0) as u64 } else { 0 }
    }

    /// Keeps at most about this many unsent bytes in the socket (`TCP_NOTSENT_LOWAT`): what is in there is bound to this rail.
    pub fn set_unsent_limit(&self, bytes: u32) -> io::Result<()> {
        SockRef::from(self.fd.get_ref()).set_tcp_notsent_lowat(bytes)
    }

    /// The socket's send buffer, which the kernel makes longer as the path needs it.
    pub fn send_buffer_bytes(&self) -> Option<u64> {
        SockRef::from(self.fd.get_ref()).send_buffer_size().ok().map(|bytes| bytes as u64)
    }

    /// Whether the congestion control takes losses for congestion: all but BBR do.
    pub fn minds_losses(&self) -> bool {
        SockRef::from(self.fd.get_ref()).tcp_congestion().is_ok_and(|name| !name.starts_with(b"bbr"))
    }

    /// What the kernel knows of the path.
    pub fn info(&self) -> PathInfo {
        // SAFETY: all-zero bytes are a valid tcp_info, and the kernel writes at most `length` bytes of it.
        let (ok, info) = unsafe {
            let mut info: libc::tcp_info = std::mem::zeroed();
            let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
            let fd = self.fd.get_ref().as_raw_fd();
            let ok = libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut length);
            (ok == 0, info)
        };
        const TCP_CLOSE: u8 = 7;
        const TCP_CLOSE_WAIT: u8 = 8;
        let silent = info.tcpi_probes >= DEAD_PROBES && u128::from(info.tcpi_last_ack_recv) > DEAD_AFTER.as_millis();
        PathInfo {
            alive: ok && info.tcpi_state != TCP_CLOSE && !silent,
            ended: info.tcpi_state == TCP_CLOSE_WAIT,
            window_closed: info.tcpi_unacked == 0 && info.tcpi_notsent_bytes > 0,
            rtt_us: info.tcpi_rtt,
            min_rtt_us: info.tcpi_min_rtt,
            delivery_bytes_s: info.tcpi_delivery_rate as f64,
            window_limited_us: info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited,
            resent_segments: info.tcpi_total_retrans.into(),
            busy_us: info.tcpi_busy_time,
        }
    }

    /// Whether to wait for the peer for any time, because its window is closed: the kernel would otherwise take a peer that
    /// answers, but whose application pauses, for dead after [`DEAD_AFTER`].
    pub fn set_patient(&self, patient: bool) {
        if self.patient.replace(patient) != patient {
            let _ = SockRef::from(self.fd.get_ref()).set_tcp_user_timeout((!patient).then_some(DEAD_AFTER));
        }
    }

    /// Ends both directions at once; the peer sees the end of the stream.
    pub fn shutdown(&self) {
        let _ = self.fd.get_ref().shutdown(std::net::Shutdown::Both);
    }

    /// The two ends' addresses.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.fd.get_ref().local_addr()?, self.fd.get_ref().peer_addr()?))
    }
}

fn set_option(stream: &TcpStream, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads an int from the pointer, which is valid for that.
    let ok = unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_TCP, option, (&raw const value).cast(), length) };
    if ok == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where a connection leaves this host from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalEnd {
    /// Source address.
    pub address: IpAddr,
    /// Interface to bind to: with two ports in one subnet the source address alone does not choose the port.
    pub interface: Option<String>,
}

/// Connects from `local` (or from wherever the routes say) to `remote`.
pub async fn dial(
    local: Option<&LocalEnd>,
    remote: SocketAddr,
    timeout: Duration,
) -> io::Result<tokio::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let Some(end) = local {
        if let Some(name) = &end.interface {
            // Kernels before 5.7 allow it to root only; the source address then has to do.
            let _ = socket.bind_device(Some(name.as_bytes()));
        }
        socket.bind(&SockAddr::from(SocketAddr::new(end.address, 0)))?;
    }
    let connecting = tokio::net::TcpSocket::from_std_stream(socket.into()).connect(remote);
    let stream =
        tokio::time::timeout(timeout, connecting).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[tokio::test]
    async fn a_channel_does_not_wait_long_for_acknowledgements() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = ChannelSocket::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        for (option, time) in [(TCP_RTO_MIN_US, RESEND_AFTER), (TCP_DELACK_MAX_US, ACKNOWLEDGE_WITHIN)] {
            let (mut value, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
            let (fd, place) = (socket.fd.get_ref().as_raw_fd(), (&raw mut value).cast());
            // SAFETY: the kernel writes an int to the pointer, which is valid for that.
            if unsafe { libc::getsockopt(fd, libc::SOL_TCP, option, place, &mut length) } != 0 {
                println!(
                    "skipped: the kernel has no TCP option {option} (Linux 6.15 has): {}",
                    io::Error::last_os_error()
                );
                return;
            }
            // The kernel counts in ticks of its clock.
            let tick_us = 10_000;
            assert!((value - time.as_micros() as libc::c_int).abs() <= tick_us, "{option}: {value}");
        }
    }
}
