//! Lets hosts that hold a ticket join a broadcast.

use super::ticket::Ticket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Makes a broadcast one that hosts may join by a ticket, and ends it: see
/// [`Options::joining`](super::Options::joining). Clones are the same.
///
/// The root stays when all hosts that it was given are complete, and so do they. Hosts that join get the data
/// from all of them.
#[derive(Debug, Clone)]
pub struct Joining {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    seed_for: Option<Duration>,
    ticket: watch::Sender<Option<Ticket>>,
    is_seeding: AtomicBool,
    is_stopped: watch::Sender<bool>,
}

impl Joining {
    /// The root stays for `seed_for` after the last host has become complete. `None`: until
    /// [`Joining::stop`].
    #[must_use]
    pub fn new(seed_for: Option<Duration>) -> Self {
        let state = State {
            seed_for,
            ticket: watch::Sender::new(None),
            is_seeding: AtomicBool::new(false),
            is_stopped: watch::Sender::new(false),
        };
        Self { state: Arc::new(state) }
    }

    /// Waits for the ticket, which exists once the source was read.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    pub async fn ticket(&self) -> Ticket {
        let mut ticket = self.state.ticket.subscribe();
        loop {
            if let Some(ticket) = ticket.borrow_and_update().clone() {
                return ticket;
            }
            // This value holds the sender.
            let _ = ticket.changed().await;
        }
    }

    /// Ends the broadcast if every host that was given is complete or was given up; else does nothing.
    /// Returns whether it ends.
    pub fn stop(&self) -> bool {
        let is_seeding = self.state.is_seeding.load(Ordering::Acquire);
        if is_seeding {
            self.state.is_stopped.send_replace(true);
        }
        is_seeding
    }

    pub(super) fn seed_for(&self) -> Option<Duration> {
        self.state.seed_for
    }

    pub(super) fn publish(&self, ticket: Ticket) {
        self.state.ticket.send_replace(Some(ticket));
    }

    pub(super) fn begin_seeding(&self) {
        self.state.is_seeding.store(true, Ordering::Release);
    }

    /// Waits for [`Joining::stop`].
    pub(super) async fn stopped(&self) {
        let _ = self.state.is_stopped.subscribe().wait_for(|is_stopped| *is_stopped).await;
    }
}
