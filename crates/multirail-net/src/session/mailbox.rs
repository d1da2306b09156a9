//! Where new connections wait for the session to which they belong.

use crate::secure::keys::Protection;
use crate::sync::lock;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A connection that passed the handshake and waits for the runtime that drives the session.
#[derive(Debug)]
pub(super) enum Joining {
    /// A control connection.
    Control { stream: TcpStream, protection: Protection },
    /// A channel.
    Data { stream: TcpStream, protection: Protection, id: u32, rail: u32, replaces: Option<u32> },
}

/// Connections that wait, and the session data that their handshake needs.
///
/// It has its own lock, since a sink that writes to a slow disk holds the session's lock.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    joining: Mutex<Vec<Joining>>,
    /// The number of channels that are up.
    up: AtomicUsize,
    /// Entries in the table of channels.
    entries: AtomicUsize,
    over: AtomicBool,
}

impl Mailbox {
    pub(super) fn put(&self, joining: Joining) {
        self.lock().push(joining);
    }

    /// Takes all waiting connections.
    pub(super) fn take(&self) -> Vec<Joining> {
        std::mem::take(&mut *self.lock())
    }

    /// Marks the session as over.
    pub(super) fn close(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the session is over.
    pub(super) fn is_closed(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Records how many channels are up, and how many entries the table has.
    pub(super) fn set_counts(&self, up: usize, entries: usize) {
        self.up.store(up, Ordering::Relaxed);
        self.entries.store(entries, Ordering::Relaxed);
    }

    /// Channels that are up or waiting, and entries in the table of channels.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.up.load(Ordering::Relaxed) + self.lock().len(), self.entries.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Joining>> {
        lock(&self.joining)
    }
}
