//! Repeated broadcasts from memory into memory over the same links.
//!
//! Receiving programs call [`Receiver::bind`] and [`Receiver::next`]. The sending program makes a
//! [`Group`] of them.

use super::broadcast::little_data;
use super::coordinator::CoordinatorDriver;
use super::error::BroadcastError;
use super::inbox::Inbox;
use super::options::{BroadcastHost, Options};
use super::serve::{Registry, serve_invite, serve_peer_here};
use super::summary::Summary;
use crate::request::MulticastRequest;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use multirail_net::error::{Error, Result};
use multirail_net::record::Notes;
use multirail_net::request;
use multirail_net::session::{Accepted, ListenConfig, Listener};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A group of hosts that receive the broadcasts of this host. [`Group::end`] ends it on all hosts.
pub struct Group {
    coordinator: CoordinatorDriver,
    piece_bytes: Option<u32>,
    next: u32,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("broadcasts", &self.next).finish_non_exhaustive()
    }
}

impl Group {
    /// Invites `hosts`, on each of which a [`Receiver`] listens. This host is in cluster
    /// `root_cluster`. Hosts that do not answer are invited again while the group lasts, and get
    /// later broadcasts.
    ///
    /// # Errors
    ///
    /// [`BroadcastError::Hosts`] if the hosts do not form a group, and [`BroadcastError::Own`] if
    /// this host cannot listen.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: dropping the future ends the invitations.
    pub async fn create(
        hosts: &[BroadcastHost],
        root_cluster: u32,
        options: &Options,
    ) -> Result<Group, BroadcastError> {
        let coordinator = CoordinatorDriver::begin(hosts, root_cluster, options, None, None).await?;
        coordinator.gather().await;
        Ok(Group { coordinator, piece_bytes: options.piece_bytes, next: 0 })
    }

    /// Broadcasts `data`; returns when every host that can have it does. A failure on one host is
    /// in the [`Summary`]; a host that failed gets no further broadcasts.
    ///
    /// # Errors
    ///
    /// [`BroadcastError::Source`] if the piece size is not valid, and [`BroadcastError::Own`] if
    /// this host's part failed.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: end the group after dropping the future.
    pub async fn broadcast(&mut self, data: &[u8]) -> Result<Summary, BroadcastError> {
        self.broadcast_owned(data.to_vec()).await
    }

    /// As [`Group::broadcast`], without a copy of the data.
    ///
    /// # Errors
    ///
    /// Those of [`Group::broadcast`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: end the group after dropping the future.
    pub async fn broadcast_owned(&mut self, data: Vec<u8>) -> Result<Summary, BroadcastError> {
        let store = MemoryStore::full(data, self.piece_bytes);
        let store: Arc<dyn Store> = Arc::new(store.map_err(|e| BroadcastError::Source(e.to_string()))?);
        let little = little_data(&*store).map_err(|e| BroadcastError::Source(e.to_string()))?;
        let number = self.next;
        self.next += 1;
        let summary = self.coordinator.broadcast(number, store, little).await;
        self.coordinator.forget_below(self.next);
        summary
    }

    /// Tells all hosts that no broadcast follows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sessions of hosts that the message has not reached.
    pub async fn end(self) {
        self.coordinator.end().await;
    }
}

/// Receives the broadcasts of the root of a [`Group`].
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    whole: mpsc::Receiver<Vec<u8>>,
    accepting: JoinHandle<()>,
}

impl Receiver {
    /// Listens for an invitation and takes broadcasts of at most `limit_bytes`. The runtime of the
    /// caller drives the sessions.
    ///
    /// # Errors
    ///
    /// Those of [`Listener::bind`].
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it never waits.
    pub async fn bind(config: ListenConfig, limit_bytes: u64) -> Result<Receiver> {
        let session = config.session.clone();
        let listener = Listener::bind(config).await?;
        let address = listener.address();
        let (inbox, whole) = Inbox::new(limit_bytes);
        let registry = Arc::new(Registry::of_memory(inbox, session));
        Ok(Receiver { address, whole, accepting: tokio::spawn(accept(listener, registry)) })
    }

    /// The address with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next broadcast, complete and verified. After the end of a group, another group can
    /// invite the receiver.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the listener failed.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a broadcast that is complete stays in the queue for the next call.
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        self.whole.recv().await.ok_or(Error::Closed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(mut listener: Listener, registry: Arc<Registry>) {
    while let Ok(accepted) = listener.accept().await {
        let Accepted::Session(new) = accepted else { continue };
        let registry = registry.clone();
        tokio::spawn(async move {
            let peer = new.peer();
            let mut session = new.start();
            let ended = match request::receive_request(&mut session).await.and_then(|request| request.parse()) {
                Ok(MulticastRequest::Invite(request)) => {
                    serve_invite(&registry, &mut session, request, &Notes::default()).await
                }
                Ok(MulticastRequest::Peer(hello)) => serve_peer_here(&registry, session, hello).await,
                Ok(_) => Err(Error::Protocol("a connection for another protocol".to_owned())),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a session to a receiver");
            }
        });
    }
}
