//! One TCP connection as a channel sees it: non-blocking vectored reads and writes, and the
//! kernel's information about the path.

use crate::secure::keys::Protection;
use crate::tcp_info::tcp_info;
use multirail_proto::background::Background;
use multirail_proto::session::{INITIAL_UNSENT_BYTES, PathInfo};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// A rail is dead if sent bytes stay unacknowledged for this long. The time is twice the largest
/// round trip and queue of a usable path, and short enough that the bytes are re-sent within two
/// seconds.
pub const DEAD_AFTER: Duration = Duration::from_millis(1500);
/// The kernel probes an idle rail after this time, and again every [`IDLE_PROBE_EVERY`]. The rail is
/// dead if it has not answered for [`DEAD_AFTER`].
const IDLE_PROBE_AFTER: Duration = Duration::from_secs(2);
/// The time between probes of an idle rail.
const IDLE_PROBE_EVERY: Duration = Duration::from_secs(1);
/// The number of unanswered window probes that, together with [`DEAD_AFTER`], mean the same.
const DEAD_PROBES: u8 = 3;
/// The kernel's minimum retransmission timeout, to which it adds the round trip. When the last
/// packets of a burst are dropped, no later packet reveals the loss, and Linux would wait for 200
/// ms.
const RESEND_AFTER: Duration = Duration::from_millis(50);
/// The kernel's maximum delay of an acknowledgement, so that the peer does not retransmit
/// needlessly.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(25);
/// Bytes are sealed as many at a time as the socket may hold unsent, since they can no longer change
/// rails, but at least these.
const MIN_SEALED_BYTES: u32 = 4 << 10;
/// Missing in libc: `include/uapi/linux/tcp.h`, since Linux 6.15.
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// A connected TCP socket registered with the runtime in which it was made.
#[derive(Debug)]
pub(crate) struct ChannelSocket {
    fd: AsyncFd<TcpStream>,
    protection: RefCell<Protection>,
    unsent_limit: Cell<u32>,
    /// The kernel's limit of [`ChannelSocket::set_wake_up`].
    wake_up_bytes: Cell<libc::c_int>,
    tolerates_silence: Cell<bool>,
    /// What it sends yields to other traffic.
    background: RefCell<Option<Background>>,
}

impl ChannelSocket {
    /// Takes over a connected stream, whose bytes are protected like this.
    pub(crate) fn new(stream: TcpStream, protection: Protection) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_user_timeout(Some(DEAD_AFTER))?;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(IDLE_PROBE_AFTER).with_interval(IDLE_PROBE_EVERY).with_retries(3),
        )?;
        for (option, time) in [(TCP_RTO_MIN_US, RESEND_AFTER), (TCP_DELACK_MAX_US, ACKNOWLEDGE_WITHIN)] {
            // Older kernels know neither option.
            let _ = set_option(&stream, libc::SOL_TCP, option, time.as_micros() as libc::c_int);
        }
        // SAFETY: the stream owns its descriptor and never changes or closes it before it is
        // dropped.
        let fd = unsafe { AsyncFd::register(stream) }?;
        let this = Self {
            fd,
            protection: RefCell::new(protection),
            unsent_limit: Cell::new(INITIAL_UNSENT_BYTES),
            wake_up_bytes: Cell::new(1),
            tolerates_silence: Cell::new(false),
            background: RefCell::default(),
        };
        this.set_unsent_limit(INITIAL_UNSENT_BYTES)?;
        Ok(this)
    }

    /// The same socket, registered with the calling runtime.
    pub(crate) fn moved(self) -> io::Result<Self> {
        // SAFETY: as in `new`.
        Ok(Self { fd: unsafe { AsyncFd::register(self.fd.into_inner()) }?, ..self })
    }

    /// Writes as much of `parts` as the socket takes. `Pending` means that the socket is full and
    /// will wake the task; the caller continues until then, with the same bytes: some of them may be
    /// sealed.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match &mut *self.protection.borrow_mut() {
            Protection::Plaintext => self.poll_write_raw(cx, parts),
            Protection::Sealed(records) => {
                let most_bytes = self.unsent_limit.get().max(MIN_SEALED_BYTES) as usize;
                let is_idle = || self.unacknowledged_raw() == 0;
                let write = |bytes: &[u8]| ready_now(self.poll_write_raw(cx, &[IoSlice::new(bytes)]));
                blocking(records.write(parts, most_bytes, is_idle, write))
            }
        }
    }

    /// Whether bytes of the caller were sealed and not written.
    pub(crate) fn has_sealed(&self) -> bool {
        matches!(&*self.protection.borrow(), Protection::Sealed(records) if records.has_sealed())
    }

    fn poll_write_raw(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
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

    /// Whether the socket has room now; if not, it will wake the task.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.fd.poll_write_ready(cx).map(|_| ())
    }

    /// Reads received bytes into `parts`; 0 is the end of the stream. `Pending` as in
    /// [`Self::poll_write`].
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, parts: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        match &mut *self.protection.borrow_mut() {
            Protection::Plaintext => self.poll_read_raw(cx, parts),
            Protection::Sealed(records) => {
                blocking(records.read(parts, |room| ready_now(self.poll_read_raw(cx, &mut [IoSliceMut::new(room)]))))
            }
        }
    }

    fn poll_read_raw(&self, cx: &mut Context<'_>, parts: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        let want: usize = parts.iter().map(|p| p.len()).sum();
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            match self.fd.get_ref().read_vectored(parts) {
                Ok(n) => {
                    // A short read has emptied the socket, so the next one would return nothing.
                    // The end of the stream stays readable.
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

    /// As [`Self::poll_read`], but polls the socket directly and ignores readiness: for a receiver
    /// that spins.
    pub(crate) fn read_now(&self, parts: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        match &mut *self.protection.borrow_mut() {
            Protection::Plaintext => blocking(self.fd.get_ref().read_vectored(parts)),
            Protection::Sealed(records) => blocking(records.read(parts, |room| self.fd.get_ref().read(room))),
        }
    }

    /// Bytes that were read from the socket and wait for the rest of their record.
    fn held_bytes(&self) -> usize {
        match &*self.protection.borrow() {
            Protection::Plaintext => 0,
            Protection::Sealed(records) => records.held_bytes(),
        }
    }

    /// The number of bytes that have arrived and are unread.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int to the pointer, which is valid for that.
        let ok = unsafe { libc::ioctl(self.fd.get_ref().as_raw_fd(), libc::FIONREAD, &mut bytes) };
        self.held_bytes() as u64 + if ok == 0 { bytes.max(0) as u64 } else { 0 }
    }

    /// Makes the socket readable only when this many bytes have arrived (`SO_RCVLOWAT`), the stream
    /// has ended, or its buffer is full.
    pub(crate) fn set_wake_up(&self, bytes: u32) -> io::Result<()> {
        // Records are longer than what they carry, and a part of one may have been read already. The
        // kernel makes a socket readable before its limit when memory is short, so that the part can
        // grow while the number of bytes to come stays the same.
        let bytes = u64::from(bytes).saturating_sub(self.held_bytes() as u64).max(1);
        let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        if self.wake_up_bytes.replace(value) == value {
            return Ok(());
        }
        // SAFETY: the option takes one int, which the pointer is to.
        let failed = unsafe {
            let fd = self.fd.get_ref().as_raw_fd();
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), size)
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The number of bytes written and not acknowledged by the peer's kernel, without what records add
    /// to them.
    pub(crate) fn unacknowledged_bytes(&self) -> u64 {
        let bytes = self.unacknowledged_raw();
        match &*self.protection.borrow() {
            Protection::Plaintext => bytes,
            Protection::Sealed(records) => (bytes as f64 * records.plaintext_share()) as u64,
        }
    }

    /// The number of bytes written and not acknowledged by the peer's kernel.
    fn unacknowledged_raw(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ (SIOCOUTQ on a TCP socket) writes one int to the pointer, which is valid
        // for that.
        let ok = unsafe { libc::ioctl(self.fd.get_ref().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        if ok == 0 { bytes.max(0) as u64 } else { 0 }
    }

    /// Limits the unsent bytes in the socket to about this number (`TCP_NOTSENT_LOWAT`), since they
    /// can no longer change rails.
    pub(crate) fn set_unsent_limit(&self, bytes: u32) -> io::Result<()> {
        self.unsent_limit.set(bytes);
        SockRef::from(self.fd.get_ref()).set_tcp_notsent_lowat(bytes)
    }

    /// The size of the socket's send buffer, which the kernel enlarges as the path needs it.
    pub(crate) fn send_buffer_bytes(&self) -> Option<u64> {
        SockRef::from(self.fd.get_ref()).send_buffer_size().ok().map(|bytes| bytes as u64)
    }

    /// Whether the congestion control treats losses as congestion: all but BBR do.
    pub(crate) fn minds_losses(&self) -> bool {
        SockRef::from(self.fd.get_ref()).tcp_congestion().is_ok_and(|name| !name.starts_with(b"bbr"))
    }

    /// The kernel's information about the path.
    pub(crate) fn info(&self) -> PathInfo {
        let Some(info) = tcp_info(self.fd.get_ref()) else { return PathInfo::default() };
        const TCP_CLOSE: u8 = 7;
        const TCP_CLOSE_WAIT: u8 = 8;
        let silent = info.tcpi_probes >= DEAD_PROBES && u128::from(info.tcpi_last_ack_recv) > DEAD_AFTER.as_millis();
        PathInfo {
            alive: info.tcpi_state != TCP_CLOSE && !silent,
            ended: info.tcpi_state == TCP_CLOSE_WAIT,
            unanswered: info.tcpi_probes > 0 || info.tcpi_retransmits > 0,
            window_closed: info.tcpi_unacked == 0 && info.tcpi_notsent_bytes > 0,
            rtt_us: info.tcpi_rtt,
            min_rtt_us: info.tcpi_min_rtt,
            delivery_bytes_s: info.tcpi_delivery_rate as f64,
            window_limited_us: info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited,
            resent_segments: info.tcpi_total_retrans.into(),
            busy_us: info.tcpi_busy_time,
        }
    }

    /// Sets whether the kernel waits for acknowledgements without limit. Otherwise it gives up a
    /// peer that answers but whose application pauses for [`DEAD_AFTER`].
    pub(crate) fn tolerate_silence(&self, tolerate: bool) {
        if self.tolerates_silence.replace(tolerate) != tolerate {
            let _ = SockRef::from(self.fd.get_ref()).set_tcp_user_timeout((!tolerate).then_some(DEAD_AFTER));
        }
    }

    /// Paces what it sends from now on so that it yields to other traffic, and adapts the pace when it is
    /// called again. The kernel paces TCP without a queueing discipline for it. Time is that since any
    /// beginning.
    pub(crate) fn yield_to_others(&self, now: Duration) {
        let mut background = self.background.borrow_mut();
        let background = background.get_or_insert_with(|| {
            // Every user of every kernel may choose it. BBR would keep to a low pace for seconds
            // after it was lifted.
            let _ = SockRef::from(self.fd.get_ref()).set_tcp_congestion(b"reno");
            Background::default()
        });
        let bytes_s = u32::try_from(background.observe(now, &self.info())).unwrap_or(u32::MAX);
        let _ = set_option(self.fd.get_ref(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_s as libc::c_int);
    }

    /// Whether the peer has reset the connection. Asking takes the socket's error, so no other call
    /// reports it.
    pub(crate) fn take_reset(&self) -> bool {
        is_reset(self.fd.get_ref().take_error().ok().flatten().as_ref())
    }

    /// Ends both directions at once; the peer sees the end of the stream.
    pub(crate) fn shutdown(&self) {
        let _ = self.fd.get_ref().shutdown(std::net::Shutdown::Both);
    }

    /// The two ends' addresses.
    pub(crate) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.fd.get_ref().local_addr()?, self.fd.get_ref().peer_addr()?))
    }
}

/// The error `WouldBlock` of a socket that is not ready.
fn ready_now<T>(done: Poll<io::Result<T>>) -> io::Result<T> {
    match done {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// `Pending` for the errors of a socket that is not ready.
fn blocking<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Poll::Pending,
        done => Poll::Ready(done),
    }
}

/// Whether this error means that the peer has ended the connection.
pub(crate) fn is_reset(error: Option<&io::Error>) -> bool {
    error.is_some_and(|e| matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
}

fn set_option(stream: &TcpStream, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads an int from the pointer, which is valid for that.
    let ok = unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if ok == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The source of a connection on this host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalEnd {
    /// Source address.
    pub address: IpAddr,
    /// The interface to bind to. With two ports in one subnet, the source address alone does not
    /// select the port.
    pub interface: Option<String>,
}

/// Connects from `local` to `remote`; without `local`, the routes choose the source.
pub(crate) async fn dial(
    local: Option<&LocalEnd>,
    remote: SocketAddr,
    timeout: Duration,
) -> io::Result<tokio::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let Some(end) = local {
        if let Some(name) = &end.interface {
            // Kernels before 5.7 allow it only to root; then the source address must suffice.
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
    use crate::secure::cipher::{Cipher, SECRET_BYTES};
    use crate::secure::layer::RecordLayer;
    use crate::secure::record::{Opener, Sealer};
    use std::io::Write;
    use std::net::TcpListener;

    fn connected(listener: &TcpListener) -> ChannelSocket {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ChannelSocket::new(stream, Protection::Plaintext).unwrap()
    }

    #[tokio::test]
    async fn what_yields_to_others_is_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = connected(&listener);
        let fd = socket.fd.get_ref().as_raw_fd();
        let pace_bytes_s = || {
            let (mut value, mut length) = (0_u32, size_of::<u32>() as libc::socklen_t);
            let place = (&raw mut value).cast();
            // SAFETY: the kernel writes an int to the pointer, which is valid for that.
            let ok = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, place, &mut length) };
            assert_eq!(ok, 0);
            value
        };
        assert_eq!(pace_bytes_s(), u32::MAX, "without a limit");
        socket.yield_to_others(Duration::ZERO);
        let first = pace_bytes_s();
        assert!(first < u32::MAX);
        assert!(socket.minds_losses(), "BBR does not yield");
        // The rate that the rule gives is that of the socket.
        let path = socket.info();
        let expected = Background::default().observe(Duration::ZERO, &path);
        assert_eq!(u64::from(first), expected);
    }

    /// The rest of a record is shorter than the rest of the run. A socket that waited for more than that
    /// would never become readable again.
    #[tokio::test]
    async fn a_part_of_a_record_lowers_the_limit_of_the_next_wake_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let layer = || {
            let secret = [1; SECRET_BYTES];
            RecordLayer::new(Sealer::new(Cipher::Aes128Gcm, secret), Opener::new(Cipher::Aes128Gcm, secret))
        };
        let socket = ChannelSocket::new(stream, Protection::Sealed(Box::new(layer()))).unwrap();
        let run = [7; 1000];
        let mut record = Vec::new();
        let seal = |bytes: &[u8]| {
            record.extend_from_slice(bytes);
            Ok(bytes.len())
        };
        layer().write(&[IoSlice::new(&run)], usize::MAX, || true, seal).unwrap();
        let mut room = [0; 1000];
        let (first, last) = record.split_at(900);
        socket.set_wake_up(1000).unwrap();
        peer.write_all(first).unwrap();
        // As if the kernel had made the socket readable before its limit.
        while socket.held_bytes() < first.len() {
            assert!(socket.read_now(&mut [IoSliceMut::new(&mut room)]).is_pending());
        }
        socket.set_wake_up(1000).unwrap();
        let read = std::future::poll_fn(|cx| socket.poll_read(cx, &mut [IoSliceMut::new(&mut room)]));
        let (read, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(10), read), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            peer.write_all(last).unwrap();
        });
        assert_eq!(read.expect("it becomes readable").unwrap(), 1000);
    }

    #[tokio::test]
    async fn acknowledgement_timers_are_short() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = connected(&listener);
        for (option, time) in [(TCP_RTO_MIN_US, RESEND_AFTER), (TCP_DELACK_MAX_US, ACKNOWLEDGE_WITHIN)] {
            let (mut value, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
            let (fd, place) = (socket.fd.get_ref().as_raw_fd(), (&raw mut value).cast());
            // SAFETY: the kernel writes an int to the pointer, which is valid for that.
            if unsafe { libc::getsockopt(fd, libc::SOL_TCP, option, place, &mut length) } != 0 {
                println!(
                    "skipped: the kernel has no TCP option {option} (it is in Linux 6.15): {}",
                    io::Error::last_os_error()
                );
                return;
            }
            // The kernel rounds to ticks of its clock.
            let tick_us = 10_000;
            assert!((value - time.as_micros() as libc::c_int).abs() <= tick_us, "{option}: {value}");
        }
    }
}
