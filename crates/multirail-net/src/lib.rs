#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

pub mod blocking;
pub mod budget;
pub mod connection;
pub mod error;
pub mod handshake;
pub mod pairing;
pub mod payload;
pub mod permissions;
mod private_file;
pub mod probe;
pub mod protocol;
pub mod quota;
pub mod rails;
mod random;
mod rate_limit;
pub mod record;
pub mod request;
pub mod router;
pub mod runtime;
mod secure;
pub mod session;
mod socket;
pub mod stop;
pub mod stream;
pub mod streams;
#[doc(hidden)]
pub mod sync;
mod tcp_info;
pub mod token;
pub mod traffic;

pub use connection::Connection;
pub use error::{Error, IdentityError, Result, TokenError};
pub use multirail_proto::striping::Strategy;
pub use permissions::Permissions;
pub use rails::RailFilter;
pub use rate_limit::RateLimit;
pub use secure::authorized_keys::{AuthorizedKeys, Client};
pub use secure::identity::Identity;
pub use secure::known_hosts::KnownHosts;
pub use secure::public_key::{ParsePublicKeyError, PublicKey};
pub use session::{Channels, Config, Session};
pub use stream::Stream;
pub use token::Token;

/// The default port of a server.
pub const DEFAULT_PORT: u16 = 7717;
