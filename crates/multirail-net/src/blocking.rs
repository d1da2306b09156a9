//! Sessions and streams for callers without tokio.
//!
//! ```
//! use multirail_net::Config;
//! use multirail_net::blocking::{Listener, Session};
//! use multirail_net::session::ListenConfig;
//!
//! let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new()))?;
//! let address = listener.address().to_string();
//! let server = std::thread::spawn(move || -> multirail_net::Result<Vec<u8>> {
//!     let (mut session, _peer) = listener.accept()?;
//!     let mut buffer = vec![0; 1 << 20];
//!     let length = session.recv(&mut buffer)?;
//!     session.close()?;
//!     buffer.truncate(length);
//!     Ok(buffer)
//! });
//!
//! let mut session = Session::connect(&address, Config::new())?;
//! session.send(b"no tokio here")?;
//! session.close()?;
//! assert_eq!(server.join().unwrap()?, b"no tokio here");
//! # Ok::<(), multirail_net::Error>(())
//! ```
//!
//! # Who drives a session
//!
//! A session also works between calls: it confirms what has arrived, reopens dead rails, and hands
//! a stream's last bytes to the kernel. If only blocking calls drove the runtime, a caller that
//! computes for a minute would keep the peer waiting for confirmations, and would notice a dead
//! rail only afterwards. So every [`Session::connect`] and every [`Listener`] has a thread that
//! drives a runtime: socket readiness, timers, and maintenance tasks. The calling thread still
//! stripes, sends and receives the messages; the helper thread only wakes it. The cost is one
//! thread for each connection, which sleeps while idle, and a wake-up between threads whenever a
//! call has to wait. The sessions of one listener share its thread.
//!
//! The thread ends by itself, at most 30 seconds after the last user is dropped, once all data
//! written to streams is delivered. A process that exits does not wait for it: close sessions and
//! shut streams down to be sure that all data has arrived.
//!
//! # Panics
//!
//! All functions that wait panic when called from an asynchronous tokio task: use the types of the
//! crate's root there.

use crate::error::{Error, Result};
use crate::payload::{Sink, Source};
use crate::session::{Accepted, Config, LINGER, ListenConfig, RailStatus, Stats, Watch};
use crate::{session, stream};
use multirail_proto::striping::Strategy;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// How often the helper thread checks whether it can end, once it is unused.
const END_EVERY: Duration = Duration::from_millis(20);

/// A session whose calls block: [`crate::Session`].
#[derive(Debug)]
pub struct Session {
    inner: session::Session,
    driver: Arc<Driver>,
}

/// The sending half of a [`Session`]: [`session::Sender`].
#[derive(Debug)]
pub struct Sender {
    inner: session::Sender,
    driver: Arc<Driver>,
}

/// The receiving half of a [`Session`]: [`session::Receiver`].
#[derive(Debug)]
pub struct Receiver {
    inner: session::Receiver,
    driver: Arc<Driver>,
}

/// Accepts sessions: [`session::Listener`].
#[derive(Debug)]
pub struct Listener {
    inner: session::Listener,
    driver: Arc<Driver>,
}

/// A byte stream over all rails: [`crate::Stream`], for `std::io`.
#[derive(Debug)]
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
}

/// The reading half of a [`Stream`].
#[derive(Debug)]
pub struct ReadHalf {
    inner: stream::ReadHalf,
    driver: Arc<Driver>,
}

/// The writing half of a [`Stream`]. Dropping it ends the stream in the background.
#[derive(Debug)]
pub struct WriteHalf {
    inner: stream::WriteHalf,
    driver: Arc<Driver>,
}

impl Session {
    /// Connects to a listener at `host` (`name:port` or `address:port`):
    /// [`crate::Session::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Session::connect`], and [`Error::Io`] if no thread can be started.
    pub fn connect(host: &str, config: Config) -> Result<Session> {
        let driver = Driver::start()?;
        let inner = driver.wait(session::Session::connect(host, config))?;
        Ok(Session { inner, driver })
    }

    /// Sends one message: [`session::Sender::send`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Sender::send`].
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.driver.wait(self.inner.send(message))
    }

    /// Receives one message: [`session::Receiver::recv`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Receiver::recv`].
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.driver.wait(self.inner.recv(buffer))
    }

    /// Sends one message from a source: [`session::Sender::send_from`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Sender::send_from`].
    pub fn send_from(&mut self, source: &mut dyn Source, grain_bytes: u64) -> Result<()> {
        self.driver.wait(self.inner.send_from(source, grain_bytes))
    }

    /// Receives one message into a sink: [`session::Receiver::recv_into`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Receiver::recv_into`].
    pub fn recv_into(&mut self, sink: &mut dyn Sink) -> Result<u64> {
        self.driver.wait(self.inner.recv_into(sink))
    }

    /// Waits until the peer has received everything that was sent, at most 30 seconds, then ends
    /// the session.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Session::close`].
    pub fn close(self) -> Result<()> {
        self.driver.wait(self.inner.close())
    }

    /// The two halves, for different threads.
    pub fn into_split(self) -> (Sender, Receiver) {
        let (sender, receiver) = self.inner.into_split();
        (Sender { inner: sender, driver: self.driver.clone() }, Receiver { inner: receiver, driver: self.driver })
    }

    /// Turns the session into a byte stream. The peer must do the same.
    pub fn into_stream(self) -> Stream {
        let (read, write) = self.driver.wait(async { self.inner.into_stream() }).into_split();
        Stream {
            read: ReadHalf { inner: read, driver: self.driver.clone() },
            write: WriteHalf { inner: write, driver: self.driver },
        }
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// The current state of the session's rails.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.inner.rails()
    }

    /// A handle for watching the session from other threads.
    pub fn watch(&self) -> Watch {
        self.inner.watch()
    }

    /// Sets the strategy of messages that begin from now on.
    pub fn set_strategy(&mut self, strategy: Strategy, fragment_bytes: u32) {
        self.inner.set_strategy(strategy, fragment_bytes);
    }
}

impl Sender {
    /// Sends one message: [`session::Sender::send`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Sender::send`].
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.driver.wait(self.inner.send(message))
    }

    /// Sends one message from a source: [`session::Sender::send_from`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Sender::send_from`].
    pub fn send_from(&mut self, source: &mut dyn Source, grain_bytes: u64) -> Result<()> {
        self.driver.wait(self.inner.send_from(source, grain_bytes))
    }

    /// Tells the peer that no more messages follow, and waits until it has received all of them:
    /// [`session::Sender::finish`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Sender::finish`].
    pub fn finish(&mut self) -> Result<()> {
        self.driver.wait(self.inner.finish())
    }
}

impl Receiver {
    /// Receives one message: [`session::Receiver::recv`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Receiver::recv`].
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.driver.wait(self.inner.recv(buffer))
    }

    /// Receives one message into a sink: [`session::Receiver::recv_into`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Receiver::recv_into`].
    pub fn recv_into(&mut self, sink: &mut dyn Sink) -> Result<u64> {
        self.driver.wait(self.inner.recv_into(sink))
    }
}

impl Listener {
    /// Listens: [`session::Listener::bind`].
    ///
    /// # Errors
    ///
    /// Those of [`session::Listener::bind`], and [`Error::Io`] if no thread can be started.
    pub fn bind(config: ListenConfig) -> Result<Listener> {
        let driver = Driver::start()?;
        let inner = driver.wait(session::Listener::bind(config))?;
        Ok(Listener { inner, driver })
    }

    /// The address it listens on, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    /// Returns the next session and the address of its first connection. Plain TCP probes are
    /// turned away.
    ///
    /// # Errors
    ///
    /// Those of [`session::Listener::accept`].
    pub fn accept(&mut self) -> Result<(Session, SocketAddr)> {
        loop {
            if let Accepted::Session(new) = self.driver.wait(self.inner.accept())? {
                let peer = new.peer();
                let inner = self.driver.wait(async { new.start() });
                return Ok((Session { inner, driver: self.driver.clone() }, peer));
            }
        }
    }
}

impl Stream {
    /// The two halves, for different threads.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Ends the stream and waits until the peer's application has read everything. Reading remains
    /// possible.
    ///
    /// # Errors
    ///
    /// The error of the session, as the inner error.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.write.shutdown()
    }
}

impl WriteHalf {
    /// Ends the stream and waits until the peer's application has read everything.
    ///
    /// # Errors
    ///
    /// The error of the session, as the inner error.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.driver.wait(self.inner.shutdown())
    }
}

impl Read for ReadHalf {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.driver.wait(self.inner.read(buffer))
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.driver.wait(self.inner.write(bytes))
    }
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.driver.wait(self.inner.write_vectored(parts))
    }
    /// Waits until the kernel has taken everything that was written.
    fn flush(&mut self) -> io::Result<()> {
        self.driver.wait(self.inner.flush())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read.read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write.write(bytes)
    }
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write.write_vectored(parts)
    }
    /// Waits until the kernel has taken everything that was written.
    fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }
}

/// A runtime and the thread that drives it, until this is dropped and the runtime's tasks are done.
#[derive(Debug)]
struct Driver {
    handle: Handle,
    /// Dropping it lets the thread end.
    _in_use: oneshot::Sender<()>,
}

impl Driver {
    fn start() -> Result<Arc<Driver>> {
        let starting = Error::io("starting the thread that drives sessions");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(&starting)?;
        let handle = runtime.handle().clone();
        let (in_use, unused) = oneshot::channel();
        let drive = move || {
            runtime.block_on(async {
                let _ = unused.await;
                let end = Instant::now() + LINGER;
                while Handle::current().metrics().num_alive_tasks() > 0 && Instant::now() < end {
                    sleep(END_EVERY).await;
                }
            })
        };
        std::thread::Builder::new().name("multirail".to_owned()).spawn(drive).map_err(&starting)?;
        Ok(Arc::new(Driver { handle, _in_use: in_use }))
    }

    /// Runs `future` on the calling thread; the driver's thread wakes it.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }
}
