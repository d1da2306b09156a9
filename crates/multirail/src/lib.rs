#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

#[cfg(feature = "bench")]
pub mod bench;
pub mod guide;
pub mod server;

#[cfg(feature = "files")]
pub use multirail_files as files;
#[cfg(feature = "forward")]
pub use multirail_forward as forward;
#[cfg(feature = "multicast")]
pub use multirail_multicast as multicast;
pub use multirail_net::{
    AuthorizedKeys, Channels, Client, Config, Connection, Error, Identity, IdentityError, KnownHosts, Permissions,
    PublicKey, RailFilter, RateLimit, Result, Session, Strategy, Stream, Token, TokenError, blocking, budget, error,
    pairing, payload, permissions, protocol, quota, rails, record, request, router, runtime, session, stop, stream,
    streams, token, traffic,
};
// For fuzz targets and tests of handshakes.
#[doc(hidden)]
pub use multirail_net::handshake;
#[cfg(feature = "pipeline")]
pub use multirail_pipeline as pipeline;
#[cfg(feature = "place")]
pub use multirail_place as placement;
