//! Takes over the connections of all processes in a cgroup, such as those of a service.
//!
//! A BPF program connects their sockets to a relay on loopback, if they connect to the host of a server
//! that has a session. It needs root (`CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`), cgroups of version 2, and Linux
//! 5.14. The processes keep running as they are, also those that were started before.
//!
//! A call of `connect` does not wait for the target, other than under [`run`](crate::run). If the
//! target refuses, the connection is reset after it was made.

mod error;
mod redirect;
mod relay;

pub use error::CgroupError;
pub use relay::{CgroupRelay, ServerState};
