//! Copies between a TCP connection and a stream of a session.

use multirail_net::streams::{ResetCode, SessionStream};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// What is read from a connection at once.
const READ_BYTES: usize = 64 << 10;
/// How many reads one direction makes before other tasks of the runtime get their turn.
const STEPS_A_TURN: usize = 16;

thread_local! {
    /// Bytes on their way from a connection to a stream, within one call. So an idle connection has
    /// no buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Copies in both directions until both have ended.
///
/// The end of one direction is passed on, and the other goes on. If one side is reset or lost, the
/// other is reset.
///
/// # Errors
///
/// What ended the connection or the stream before both directions had ended.
///
/// # Cancel safety
///
/// Dropping the future resets both.
pub async fn relay(connection: TcpStream, mut stream: SessionStream) -> io::Result<(u64, u64)> {
    // If this process is killed, the program gets ECONNRESET, and does not take a lost connection for an
    // ended one.
    let _ = connection.set_zero_linger();
    let mut relay = Relay {
        connection: &connection,
        stream: &mut stream,
        to_stream: Way::default(),
        to_connection: Way::default(),
    };
    let relayed = poll_fn(|cx| relay.poll(cx)).await;
    let sent = (relay.to_stream.bytes, relay.to_connection.bytes);
    if let Err(error) = relayed {
        stream.reset(ResetCode::DROPPED);
        return Err(error);
    }
    // Bytes that the kernel has not sent yet are still sent.
    socket2::SockRef::from(&connection).set_linger(None)?;
    Ok(sent)
}

/// Copies between the connection of a program and one to its target, until both directions have ended.
/// If one is reset, so is the other.
pub(crate) async fn relay_plainly(mut connection: TcpStream, mut target: TcpStream) {
    for side in [&connection, &target] {
        let _ = (side.set_nodelay(true), side.set_zero_linger());
    }
    if tokio::io::copy_bidirectional(&mut connection, &mut target).await.is_ok() {
        for side in [&connection, &target] {
            let _ = socket2::SockRef::from(side).set_linger(None);
        }
    }
}

struct Relay<'a> {
    connection: &'a TcpStream,
    stream: &'a mut SessionStream,
    to_stream: Way,
    to_connection: Way,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    bytes: u64,
    has_ended: bool,
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let to_stream = self.poll_to_stream(cx)?;
        let to_connection = self.poll_to_connection(cx)?;
        if to_stream.is_ready() && to_connection.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Ready when this direction has ended.
    fn poll_to_stream(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.to_stream.has_ended {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..STEPS_A_TURN {
            let room = std::task::ready!(self.stream.poll_room(cx))?;
            std::task::ready!(self.connection.poll_read_ready(cx))?;
            let read: io::Result<_> = SCRATCH.with_borrow_mut(|scratch| {
                let count = self.connection.try_read(&mut scratch[..room.min(READ_BYTES)])?;
                // There is room for all of it.
                let written = Pin::new(&mut *self.stream).poll_write(cx, &scratch[..count]);
                debug_assert!(count == 0 || !matches!(&written, Poll::Ready(Ok(n)) if *n < count));
                Ok((count, written))
            });
            match read {
                Ok((0, _)) => {
                    self.to_stream.has_ended = true;
                    return Pin::new(&mut *self.stream).poll_shutdown(cx);
                }
                Ok((count, written)) => {
                    std::task::ready!(written)?;
                    self.to_stream.bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when this direction has ended.
    fn poll_to_connection(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.to_connection.has_ended {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..STEPS_A_TURN {
            std::task::ready!(self.connection.poll_write_ready(cx))?;
            let connection = self.connection;
            match std::task::ready!(self.stream.poll_read_with(cx, |bytes| connection.try_write(bytes))) {
                Ok(0) => {
                    self.to_connection.has_ended = true;
                    let ended = socket2::SockRef::from(self.connection).shutdown(std::net::Shutdown::Write);
                    // The program may have closed the connection meanwhile.
                    return Poll::Ready(ended.or_else(|error| match error.kind() {
                        io::ErrorKind::NotConnected => Ok(()),
                        _ => Err(error),
                    }));
                }
                Ok(count) => self.to_connection.bytes += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
