//! What a listener returns.

use super::handle::Session;
use super::maintenance;
use super::occupancy::Place;
use super::shared::Shared;
use crate::connection::Connection;
use crate::handshake::Peer;
use crate::protocol::ProtocolName;
use std::net::SocketAddr;
use std::sync::Arc;

/// What an admitted peer asks for. It can be moved to another thread, and used in that thread's
/// runtime.
#[derive(Debug)]
#[non_exhaustive]
pub enum Accepted {
    /// A session.
    Session(NewSession),
    /// A connection that passed the handshake and belongs to no session.
    Connection(NewConnection),
}

/// A connection that belongs to no session.
#[derive(Debug)]
#[non_exhaustive]
pub struct NewConnection {
    /// The protocol that the client selected.
    pub protocol: ProtocolName,
    /// The connection. No byte of the protocol has been read.
    pub connection: Connection,
    /// Where the listener has a limit.
    pub(crate) place: Option<Place>,
}

/// A session that is not yet driven by a runtime.
#[derive(Debug)]
pub struct NewSession {
    pub(super) shared: Arc<Shared>,
    pub(super) peer: SocketAddr,
    /// Where the listener has a limit.
    pub(crate) place: Option<Place>,
}

impl NewSession {
    /// The address that the peer's first connection came from.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Who the peer is.
    pub fn identity(&self) -> Peer {
        self.shared.identity
    }

    /// Starts, in the calling runtime, a session that another runtime drove.
    ///
    /// # Errors
    ///
    /// Those of registering the sockets with the runtime.
    pub fn start_moved(self) -> std::io::Result<Session> {
        self.shared.lock().move_sockets()?;
        self.shared.wake();
        Ok(self.start())
    }

    /// Starts the session in the calling runtime.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(self) -> Session {
        let mut driver = self.shared.lock();
        driver.take_joining();
        // The client waits for this side's ports.
        driver.flush_control(&mut std::task::Context::from_waker(&self.shared.both));
        drop(driver);
        maintenance::spawn(&self.shared, None);
        Session::new(self.shared)
    }
}

impl Session {
    /// Detaches an accepted session from the runtime that drives it, for another one
    /// ([`NewSession::start_moved`]). The first runtime must end, so that only one drives the
    /// session.
    pub fn into_new(self, peer: SocketAddr) -> NewSession {
        NewSession { shared: self.shared().clone(), peer, place: None }
    }
}
