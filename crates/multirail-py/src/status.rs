//! What a session has moved, and the state of its rails.

use multirail::session;
use pyo3::prelude::*;

/// The state of a rail.
#[pyclass(frozen, get_all, module = "multirail")]
#[derive(Debug)]
pub(crate) struct Rail {
    /// The number that the side which connected gave to the rail.
    number: u32,
    /// Connections that are up.
    channels: u32,
    /// This host's address and port; None while the rail is down.
    local: Option<String>,
    /// The peer's address and port; None while the rail is down.
    remote: Option<String>,
    /// The rate at which the peer received, in 10^6 bits per second; 0 before the first measurement.
    rate_mbit_s: f64,
    /// The smoothed round-trip time in microseconds.
    rtt_us: u32,
    /// Bytes of messages that were given to the rail.
    sent_bytes: u64,
    /// Bytes of messages that came over it.
    received_bytes: u64,
}

/// What a session has moved.
#[pyclass(frozen, get_all, module = "multirail")]
#[derive(Debug)]
pub(crate) struct Stats {
    /// Bytes of messages that were sent, with those sent a second time.
    sent_bytes: u64,
    /// Bytes of messages that were received, with those received a second time.
    received_bytes: u64,
    /// Bytes that were sent a second time, because a connection was lost or late.
    resent_bytes: u64,
    /// Bytes that were received a second time.
    duplicate_bytes: u64,
    /// Headers that were sent.
    control_messages: u64,
}

impl From<session::RailStatus> for Rail {
    fn from(rail: session::RailStatus) -> Self {
        let (local, remote) = rail.addresses.map(|(local, remote)| (local.to_string(), remote.to_string())).unzip();
        Self {
            number: rail.rail,
            channels: rail.channels,
            local,
            remote,
            rate_mbit_s: rail.rate_mbit_s,
            rtt_us: rail.rtt_us,
            sent_bytes: rail.sent_bytes,
            received_bytes: rail.received_bytes,
        }
    }
}

impl From<session::Stats> for Stats {
    fn from(stats: session::Stats) -> Self {
        Self {
            sent_bytes: stats.sent_bytes,
            received_bytes: stats.received_bytes,
            resent_bytes: stats.resent_bytes,
            duplicate_bytes: stats.duplicate_bytes,
            control_messages: stats.control_messages,
        }
    }
}

#[pymethods]
impl Rail {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl Stats {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}
