//! The client's side: a session to a server that forwards connections.

use crate::FORWARD;
use crate::wire::{self, ForwardAnswer, ForwardRequest, Open, Opened};
use multirail_net::streams::{SessionStream, Streams};
use multirail_net::{Config, Error, Session, request};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The round trip, in microseconds, from which on the channels of one rail can have more than one
/// connection of TCP, whose window or losses limit it there.
const LONG_RTT_US: u32 = 5_000;

/// Why a connection could not be forwarded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The server could not connect to the target: the system's error there.
    #[error("the server cannot connect to {target}: {cause}")]
    Target {
        /// The target.
        target: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// The server does not let this client reach the target.
    #[error("the server does not forward to {target}")]
    NotAllowed {
        /// The target.
        target: SocketAddr,
    },
    /// The server forwards nothing for this client.
    #[error("the server does not forward connections: {why}")]
    Refused {
        /// The server's reason.
        why: String,
    },
    /// The session has failed.
    #[error(transparent)]
    Session(#[from] Error),
    /// The stream has failed before the server answered.
    #[error("the stream to the server: {0}")]
    Stream(io::Error),
}

/// A session to a server that forwards connections.
#[derive(Debug)]
pub struct Forwarder {
    streams: Streams,
    addresses: Vec<IpAddr>,
}

impl Forwarder {
    /// Connects to the server at `host`, as [`Session::connect`] does.
    ///
    /// # Errors
    ///
    /// Those of [`Session::connect`]; [`ForwardError::Refused`] if the server forwards nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    pub async fn connect(host: &str, config: Config) -> Result<Self, ForwardError> {
        Self::over(Session::connect(host, config).await?).await
    }

    /// Uses a session that was made before, and on which no request is under way.
    ///
    /// # Errors
    ///
    /// Those of [`Forwarder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the session.
    pub async fn over(mut session: Session) -> Result<Self, ForwardError> {
        let addresses = session.rails().iter().filter_map(|rail| Some(rail.addresses?.1.ip().to_canonical())).collect();
        request::send_request(&mut session, FORWARD, &ForwardRequest).await?;
        match request::receive(&mut session).await? {
            ForwardAnswer::Ready => {
                let streams = session.into_streams();
                streams.refuse_new();
                Ok(Self { streams, addresses })
            }
            ForwardAnswer::Refused(why) => Err(ForwardError::Refused { why }),
        }
    }

    /// Connects to `target` through the server. This takes one round trip more than the server's own
    /// connection attempt.
    ///
    /// # Errors
    ///
    /// [`ForwardError::Target`] with the error that the server's system gave;
    /// [`ForwardError::NotAllowed`]; [`ForwardError::Session`] if the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resets the stream.
    pub async fn open(&self, target: SocketAddr) -> Result<SessionStream, ForwardError> {
        let mut stream = self.streams.open()?;
        wire::write(&mut stream, &Open { target }).await.map_err(ForwardError::Stream)?;
        match wire::read(&mut stream).await.map_err(ForwardError::Stream)? {
            Opened::Connected => Ok(stream),
            Opened::NotAllowed => Err(ForwardError::NotAllowed { target }),
            Opened::Failed { errno } => {
                // Any other number would not be an error of a system call.
                let errno = if (1..4096).contains(&errno) { errno } else { libc::EIO };
                Err(ForwardError::Target { target, cause: io::Error::from_raw_os_error(errno) })
            }
        }
    }

    /// The addresses of the server to which the session had a rail at its begin. The server has proven at
    /// each that it has the session's secret.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Whether connections to `target` can gain by the session. They cannot if the only rail is the path
    /// that they would take themselves, and its round trip is short.
    pub fn is_of_use(&self, target: IpAddr) -> bool {
        let mut rails = self.streams.rails();
        rails.retain(|rail| rail.channels > 0);
        let [only] = rails.as_slice() else { return true };
        let is_own_path = only.addresses.is_some_and(|(_, peer)| peer.ip().to_canonical() == target);
        !is_own_path || only.rtt_us >= LONG_RTT_US
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.streams.is_over()
    }

    /// Ends the session when its last connection has ended.
    ///
    /// # Errors
    ///
    /// The error with which the session has failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the session.
    pub async fn close(self) -> Result<(), ForwardError> {
        Ok(self.streams.close().await?)
    }
}
