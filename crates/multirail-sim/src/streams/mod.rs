//! The byte streams of a session, simulated.
//!
//! Both hosts have the [`Streams`](multirail_proto::streams::Streams) of a session whose machines,
//! sockets and rails are as in `session`. A test is the application of both: it opens, writes and
//! reads between two steps of a [`StreamSession`], and nothing else takes virtual time.

mod setup;
mod sink;
mod stream_session;

pub use setup::Setup;
pub use stream_session::StreamSession;
