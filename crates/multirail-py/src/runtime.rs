//! The runtime that drives all sessions of the process: socket readiness, timers, and maintenance between calls.
//!
//! Calls do not run in it. Each call polls its own future in the thread that called, and the runtime only wakes it.

use crate::error;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle};

/// The runtime and the process that started it.
struct Started {
    handle: Handle,
    process: u32,
}

static STARTED: OnceLock<Started> = OnceLock::new();

/// The runtime of this process, which is started when it is first needed.
///
/// A fork copies memory, and not the thread that drives the runtime. What sessions share with the parent, as connections
/// and the keys of their encryption, must not be used twice either.
pub(crate) fn handle(py: Python<'_>) -> PyResult<&'static Handle> {
    let started = match STARTED.get() {
        Some(started) => started,
        None => {
            let handle = start().map_err(|cause| error::other(py, format!("starting a thread: {cause}")))?;
            STARTED.get_or_init(|| Started { handle, process: std::process::id() })
        }
    };
    if started.process == std::process::id() {
        return Ok(&started.handle);
    }
    Err(error::make(
        py,
        error::Kind::Forked,
        format!(
            "process {} used multirail before it forked this process {}, where no thread serves the connections; start \
             processes with the method spawn or forkserver, or use multirail after the fork only",
            started.process,
            std::process::id()
        ),
        None,
    ))
}

fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let drive = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("multirail".to_owned()).spawn(drive)?;
    Ok(handle)
}

/// A value of this process. In a forked child it is leaked instead of dropped: dropping it would write to connections and
/// to an epoll instance that the parent uses.
pub(crate) struct OfProcess<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: std::process::id() }
    }
}

impl<T> std::ops::Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: the value is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
