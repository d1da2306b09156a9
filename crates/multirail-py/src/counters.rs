//! How far a copy or a broadcast is.

use multirail::{files, multicast};
use pyo3::prelude::*;
use std::sync::Arc;

/// Counters that rise while a copy or a broadcast runs. Any thread may read them.
#[pyclass(frozen, module = "multirail._multirail")]
#[derive(Clone)]
pub(crate) struct Counters {
    of: Of,
}

#[derive(Clone)]
enum Of {
    Copy(Arc<files::Progress>),
    Broadcast(Arc<multicast::Progress>),
}

impl From<Arc<files::Progress>> for Counters {
    fn from(progress: Arc<files::Progress>) -> Self {
        Self { of: Of::Copy(progress) }
    }
}

impl From<Arc<multicast::Progress>> for Counters {
    fn from(progress: Arc<multicast::Progress>) -> Self {
        Self { of: Of::Broadcast(progress) }
    }
}

#[pymethods]
impl Counters {
    /// Bytes that have arrived, and all bytes; None as long as those are not known. Those of a broadcast are the sums of
    /// its hosts.
    pub(crate) fn read(&self) -> (u64, Option<u64>) {
        match &self.of {
            Of::Copy(copy) => (copy.bytes(), copy.has_found_all().then(|| copy.expected_bytes())),
            Of::Broadcast(broadcast) => {
                let now = broadcast.snapshot();
                let held = now.hosts.iter().map(|host| host.held_bytes).sum();
                let total = now.total_bytes.saturating_mul(now.hosts.len() as u64);
                (held, (total > 0).then_some(total))
            }
        }
    }
}
