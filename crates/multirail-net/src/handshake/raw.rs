//! The handshake alone, for tests that go on with bytes of their own.

use super::client::{join, open};
use super::server::{Admitted, Doorkeeper, accept};
pub use super::types::Joined;
use super::types::{Opened, Peer, Purpose, Refusal, SessionId};
use crate::error::Result;
use crate::secure::keys::SessionSecret;
use crate::session::Config;
use tokio::net::TcpStream;

/// A session that was opened and has no driver.
#[derive(Debug)]
pub struct Session(Opened);

impl Session {
    /// Opens one, or a connection for another purpose.
    ///
    /// # Errors
    ///
    /// Those of the handshake.
    pub async fn open(stream: &mut TcpStream, config: &Config, purpose: Purpose) -> Result<Self> {
        open(stream, "the server", config, purpose).await.map(Self)
    }

    /// Joins the session with another connection.
    ///
    /// # Errors
    ///
    /// Those of the handshake.
    pub async fn join(&self, stream: &mut TcpStream, joined: Joined) -> Result<()> {
        join(stream, self.0.session, &self.0.secret, joined).await.map(drop)
    }

    /// Joins a session of this id with the keys of this one.
    ///
    /// # Errors
    ///
    /// Those of the handshake.
    pub async fn join_other(&self, stream: &mut TcpStream, id: SessionId, joined: Joined) -> Result<()> {
        join(stream, id, &self.0.secret, joined).await.map(drop)
    }

    /// The id of the session.
    pub fn id(&self) -> SessionId {
        self.0.session
    }
}

/// The side of a server that knows no session. `admit` decides about those that open one.
///
/// # Errors
///
/// Those of the handshake.
pub async fn answer(
    stream: &mut TcpStream,
    config: &Config,
    admit: impl FnMut(Peer, Purpose) -> Result<SessionId, Refusal>,
) -> Result<Purpose> {
    match accept(stream, config, &mut Door(admit)).await? {
        Admitted::Opened(_, purpose) => Ok(purpose),
        Admitted::Joined((), ..) => unreachable!("no session is found"),
    }
}

struct Door<F>(F);

impl<F: FnMut(Peer, Purpose) -> Result<SessionId, Refusal>> Doorkeeper for Door<F> {
    type Session = ();
    fn enter(&mut self, peer: Peer, purpose: Purpose) -> Result<SessionId, Refusal> {
        (self.0)(peer, purpose)
    }
    fn find(&mut self, _: SessionId) -> Result<((), SessionSecret), Refusal> {
        Err(Refusal::Session)
    }
}
