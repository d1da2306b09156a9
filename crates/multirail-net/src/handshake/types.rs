//! What a connection is for, who its peer is, and why a server refuses it.

use crate::error::Error;
use crate::protocol::ProtocolName;
use crate::secure::authorized_keys::Client;
use crate::secure::keys::{Protection, SessionSecret};
use crate::secure::public_key::PublicKey;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Incremented whenever the meaning of the bytes on a connection changes.
pub const PROTOCOL_VERSION: u16 = 3;
/// A peer that has not finished the handshake by then is disconnected.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The id of a session. It is random and no secret: joining a session takes its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId([u8; 16]);

impl SessionId {
    pub(crate) fn random() -> Self {
        Self(crate::random::bytes())
    }
}

/// What the first connection to a server is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The control connection of a new session.
    New,
    /// A connection outside of any session, for a protocol that the server's router knows.
    Connection {
        /// The protocol that follows the handshake.
        protocol: ProtocolName,
    },
}

/// What a further connection of a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joined {
    /// A new control connection for a session that lost its last one.
    Control,
    /// A data channel.
    Data {
        /// The channel's id, chosen by the client and unique within the session.
        channel: u32,
        /// The channel's rail, by the client's numbers.
        rail: u32,
        /// The channel it replaces, which is dead even if the server has not noticed.
        replaces: Option<u32>,
    },
}

/// Why a server refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The client's proof is wrong.
    Token,
    /// The server does not know the client's key.
    Key {
        /// It accepts clients that have its token.
        has_token: bool,
    },
    /// The session does not exist.
    Session,
    /// The session has reached its limit of channels.
    Channels,
    /// The server has no place for another session or connection.
    Busy {
        /// How many it serves.
        sessions: u32,
    },
    /// The server is shutting down.
    Stopping,
}

impl Refusal {
    /// The error of a side that has this key.
    pub(super) fn error(self, key: PublicKey) -> Error {
        match self {
            Refusal::Token => Error::TokenWrong,
            Refusal::Key { has_token: true } => Error::TokenMissing { key },
            Refusal::Key { has_token: false } => Error::KeyRefused { key },
            Refusal::Session => Error::SessionUnknown,
            Refusal::Busy { sessions } => Error::Busy { sessions },
            Refusal::Stopping => Error::Stopping,
            Refusal::Channels => Error::Io {
                what: "opening a channel",
                cause: io::Error::other(
                    "the session has as many channels as the server allows; use fewer channels for each rail",
                ),
            },
        }
    }
}

/// Who the peer is, and how it has proven that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub key: PublicKey,
    /// It knows the token.
    pub has_token: bool,
}

/// A connection that has passed the handshake.
#[derive(Debug)]
pub(crate) struct Opened {
    /// For [`Purpose::New`] the id that the server chose.
    pub(crate) session: SessionId,
    pub(crate) secret: SessionSecret,
    /// The keys of this connection.
    pub(crate) protection: Protection,
    pub(crate) peer: Peer,
    /// What the peer may ask of this side.
    pub(crate) client: Client,
}
