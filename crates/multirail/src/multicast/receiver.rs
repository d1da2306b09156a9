//! Broadcasts from memory into memory, again and again over the same links.
//!
//! The programs that receive call [`Receiver::bind`] and [`Receiver::next`]; the one that sends makes a [`Group`] of them.

use super::broadcast::{BroadcastError, little_data};
use super::coordinator::Coordinator;
use super::inbox::Inbox;
use super::memory_store::MemoryStore;
use super::serve::{Registry, serve_invite, serve_peer_here};
use super::{Host, Options, Store, Summary};
use crate::error::{Error, Result};
use crate::service::{self, Request};
use crate::session::{Accepted, ListenConfig, Listener};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A group of hosts that receive what this one broadcasts. [`Group::end`] tells them that no more comes.
pub struct Group {
    coordinator: Coordinator,
    piece_bytes: Option<u32>,
    next: u32,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("broadcasts", &self.next).finish_non_exhaustive()
    }
}

impl Group {
    /// Invites `hosts`, on each of which a [`Receiver`] listens; this host is in cluster `root_cluster`. Those that do not answer
    /// are invited again while the group lasts, and get what is broadcast from then on.
    pub async fn create(hosts: &[Host], root_cluster: u32, options: &Options) -> Result<Group, BroadcastError> {
        let coordinator = Coordinator::begin(hosts, root_cluster, options, None, None).await?;
        coordinator.gather().await;
        Ok(Group { coordinator, piece_bytes: options.piece_bytes, next: 0 })
    }

    /// Brings `data` to all hosts; returns when all that can have it do. What fails on a host, or with it, is in the
    /// [`Summary`]; a host that failed gets no more.
    pub async fn broadcast(&mut self, data: &[u8]) -> Result<Summary, BroadcastError> {
        let store = MemoryStore::full(data.to_vec(), self.piece_bytes);
        let store: Arc<dyn Store> = Arc::new(store.map_err(|e| BroadcastError::Source(e.to_string()))?);
        let little = little_data(&*store).map_err(|e| BroadcastError::Source(e.to_string()))?;
        let number = self.next;
        self.next += 1;
        let summary = self.coordinator.broadcast(number, store, little).await;
        self.coordinator.forget_below(self.next);
        summary
    }

    /// Tells all hosts that no more comes.
    pub async fn end(self) {
        self.coordinator.end().await;
    }
}

/// Receives what the root of a [`Group`] broadcasts.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    whole: mpsc::Receiver<Vec<u8>>,
    accepting: JoinHandle<()>,
}

impl Receiver {
    /// Listens for an invitation, and takes broadcasts of at most `limit_bytes`. Sessions are driven by the runtime that calls.
    pub async fn bind(config: ListenConfig, limit_bytes: u64) -> Result<Receiver> {
        let session = config.session.clone();
        let listener = Listener::bind(config).await?;
        let address = listener.address();
        let (inbox, whole) = Inbox::new(limit_bytes);
        let registry = Arc::new(Registry::of_memory(inbox, session));
        Ok(Receiver { address, whole, accepting: tokio::spawn(accept(listener, registry)) })
    }

    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next broadcast, whole and verified. [`Error::Closed`] when the listener has failed: the end of a group is not the
    /// end of the receiver, which another group can invite.
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
            let ended = match service::receive(&mut session).await {
                Ok(Request::Multicast(request)) => serve_invite(&registry, &mut session, request).await,
                Ok(Request::MulticastPeer(hello)) => serve_peer_here(&registry, session, hello).await,
                Ok(_) => Err(Error::Protocol("it came for something else than a broadcast".to_owned())),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a session to a receiver");
            }
        });
    }
}
