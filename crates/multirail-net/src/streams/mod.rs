//! Many byte streams in one session, each over all rails.
//!
//! ```
//! # use multirail_net::session::{Accepted, ListenConfig, Listener};
//! # use multirail_net::{Config, Session};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new())).await?;
//! # let address = listener.address().to_string();
//! # let server = async {
//! #     let Accepted::Session(new) = listener.accept().await? else { unreachable!() };
//! #     let streams = new.start().into_streams();
//! #     for _ in 0..2 {
//! #         let mut stream = streams.accept().await?;
//! #         tokio::spawn(async move {
//! #             let (mut read, mut write) = tokio::io::split(&mut stream);
//! #             let _ = tokio::io::copy(&mut read, &mut write).await;
//! #             let _ = write.shutdown().await;
//! #         });
//! #     }
//! #     streams.close().await?;
//! #     Ok::<(), Box<dyn std::error::Error>>(())
//! # };
//! # let client = async {
//! // The other host sends back what it reads from each stream.
//! let streams = Session::connect(&address, Config::new()).await?.into_streams();
//! let (mut one, mut other) = (streams.open()?, streams.open()?);
//! one.write_all(b"over all rails").await?;
//! other.write_all(b"beside it").await?;
//! other.shutdown().await?;
//! one.shutdown().await?;
//! let (mut first, mut second) = (String::new(), String::new());
//! one.read_to_string(&mut first).await?;
//! other.read_to_string(&mut second).await?;
//! assert_eq!((first.as_str(), second.as_str()), ("over all rails", "beside it"));
//! # drop((one, other));
//! # streams.close().await?;
//! # Ok(())
//! # };
//! # tokio::try_join!(server, client)?;
//! # Ok(())
//! # }
//! ```
//!
//! `multirail_proto::streams` makes the decisions: shares, windows, and what a peer may do. Both
//! sides of a session must use it for streams, from the same message on.
//!
//! # Memory
//!
//! An idle stream has less than 1 KiB. A stream keeps at most 128 KiB that were written and not sent,
//! and [`INITIAL_WINDOW_BYTES`] that were not read; up to [`MAX_WINDOW_BYTES`] if the reader is fast,
//! with [`MAX_GROWTH_BYTES`] for all streams of a session together. The session itself has at most
//! [`WINDOW_BYTES`](crate::session::WINDOW_BYTES) under way.
//!
//! # Cancel safety
//!
//! A stream holds all progress. Every future that makes one call of `poll_*` can be dropped at any
//! time.

mod core;
mod session_stream;
mod task;

pub use multirail_proto::streams::{INITIAL_WINDOW_BYTES, MAX_GROWTH_BYTES, MAX_STREAMS, MAX_WINDOW_BYTES, ResetCode};
pub use session_stream::SessionStream;

use self::core::{Core, Handle};
use crate::error::{Error, Result};
use crate::session::{RailStatus, Session};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use task::Task;
use tokio::sync::watch;

/// The streams of a session: [`Session::into_streams`].
///
/// Dropping it and all its streams ends the session, after what was written has been sent, for at
/// most 30 seconds and only while the runtime lives. [`Streams::close`] waits for that.
#[derive(Debug)]
pub struct Streams {
    handle: Arc<Handle>,
    done: watch::Receiver<bool>,
}

impl Session {
    /// Uses the session for byte streams. The peer must do the same. Call it within the runtime that
    /// drives the session.
    pub fn into_streams(self) -> Streams {
        let (sender, receiver) = self.into_split();
        let core = Core::new(sender.shared);
        let (is_done, done) = watch::channel(false);
        let task = Task::new(core.clone(), receiver);
        tokio::spawn(async move {
            task.run().await;
            let _ = is_done.send(true);
        });
        Streams { handle: Arc::new(Handle { core }), done }
    }
}

impl Streams {
    /// Opens a stream. The peer accepts it when something was written to it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] or the error with which the session has failed; [`Error::Local`] if
    /// [`MAX_STREAMS`] are open.
    pub fn open(&self) -> Result<SessionStream> {
        let core = &self.handle.core;
        let mut state = core.lock();
        if state.is_over {
            drop(state);
            return Err(core.error());
        }
        let too_many = || Error::Local(io::Error::other(format!("{MAX_STREAMS} streams of the session are open")));
        let id = state.streams.open().ok_or_else(too_many)?;
        Ok(SessionStream::new(self.handle.clone(), id))
    }

    /// Waits for the next stream that the peer opens. Only one task may wait.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] when the peer has closed the session, or the error with which it has failed.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: no stream is lost.
    pub async fn accept(&self) -> Result<SessionStream> {
        let core = &self.handle.core;
        let id = poll_fn(|cx| {
            let mut state = core.lock();
            match state.opened.pop_front() {
                Some(id) => Poll::Ready(Ok(id)),
                None if state.is_over => {
                    drop(state);
                    Poll::Ready(Err(core.error()))
                }
                None => {
                    state.acceptor = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await?;
        Ok(SessionStream::new(self.handle.clone(), id))
    }

    /// Refuses all streams that the peer opens from now on, for a side that only opens them.
    pub fn refuse_new(&self) {
        self.handle.core.lock().streams.refuse_new();
    }

    /// The current state of the session's rails.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.handle.core.shared.rails()
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.handle.core.lock().is_over
    }

    /// Ends the session when the last stream is dropped and the peer has received everything.
    ///
    /// # Errors
    ///
    /// The error with which the session has failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has the effect of dropping [`Streams`].
    pub async fn close(self) -> Result<()> {
        let Self { handle, mut done, .. } = self;
        let shared = handle.core.shared.clone();
        drop(handle);
        // The task ends with the session, or with the runtime.
        let _ = done.wait_for(|is_done| *is_done).await;
        shared.check()
    }
}
