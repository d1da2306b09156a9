//! The runtime that drives all sessions of the process: socket readiness, timers, and maintenance between calls.
//!
//! A thread of Python that waits in a call drives the runtime itself, so that no other thread must wake it. Between calls, a
//! thread in the background does.

use crate::error;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::Thread;
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard};
use tokio::sync::Notify;

/// The thread in the background drives the runtime if no call has begun for this time. Taking turns costs a call about
/// 10 µs, so it does not do that between the calls of a loop.
const QUIET: Duration = Duration::from_millis(1);
/// After so many times of [`QUIET`] in one call, the thread in the background sleeps until its end.
const LONG: u32 = 16;

/// The runtime and the process that started it.
pub(crate) struct Runtime {
    runtime: tokio::runtime::Runtime,
    process: u32,
    turns: Turns,
    background: OnceLock<Thread>,
}

/// Whose turn it is to drive.
#[derive(Default)]
struct Turns {
    calls_begun: AtomicU64,
    calls_ended: AtomicU64,
    /// The thread in the background drives, until it is notified.
    is_background: AtomicBool,
    call_has_begun: Notify,
    /// The thread in the background sleeps until the end of the last call.
    is_asleep: AtomicBool,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The runtime of this process, which is started when it is first needed.
///
/// A fork copies memory, and not the thread in the background. What sessions share with the parent, as connections and the
/// keys of their encryption, must not be used twice either.
pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Runtime> {
    let runtime = match RUNTIME.get() {
        Some(runtime) => runtime,
        None => start().map_err(|cause| error::other(py, format!("starting a thread: {cause}")))?,
    };
    if runtime.process == std::process::id() {
        return Ok(runtime);
    }
    Err(error::make(
        py,
        error::Kind::Forked,
        format!(
            "process {} used multirail before it forked this process {}, where no thread serves the connections; start \
             processes with the method spawn or forkserver, or use multirail after the fork only",
            runtime.process,
            std::process::id()
        ),
        None,
    ))
}

fn start() -> std::io::Result<&'static Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let made = Runtime { runtime, process: std::process::id(), turns: Turns::default(), background: OnceLock::new() };
    let runtime = RUNTIME.get_or_init(|| made);
    let mut started = Ok(());
    runtime.background.get_or_init(|| {
        let spawned = std::thread::Builder::new().name("multirail".to_owned()).spawn(|| runtime.drive_between_calls());
        match spawned {
            Ok(handle) => handle.thread().clone(),
            Err(cause) => {
                started = Err(cause);
                // Without the thread, calls still drive the runtime.
                std::thread::current()
            }
        }
    });
    started.map(|()| runtime)
}

impl Runtime {
    /// Runs `work` in the calling thread, which drives the runtime meanwhile.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let turns = &self.turns;
        turns.calls_begun.fetch_add(1, SeqCst);
        if turns.is_background.load(SeqCst) {
            turns.call_has_begun.notify_one();
        }
        let done = self.runtime.block_on(work);
        turns.calls_ended.fetch_add(1, SeqCst);
        if turns.is_asleep.load(SeqCst)
            && !turns.is_in_call()
            && let Some(background) = self.background.get()
        {
            background.unpark();
        }
        done
    }

    /// What is polled meanwhile uses this runtime.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    fn drive_between_calls(&self) {
        let turns = &self.turns;
        loop {
            turns.is_background.store(true, SeqCst);
            // A call that begins from now on notifies.
            if !turns.is_in_call() {
                self.runtime.block_on(turns.call_has_begun.notified());
            }
            turns.is_background.store(false, SeqCst);
            turns.wait_until_quiet();
        }
    }
}

impl Turns {
    fn is_in_call(&self) -> bool {
        // In this order: a call that begins and ends meanwhile does not hide another one.
        let ended = self.calls_ended.load(SeqCst);
        self.calls_begun.load(SeqCst) != ended
    }

    fn wait_until_quiet(&self) {
        let mut same = 0;
        loop {
            let begun = self.calls_begun.load(SeqCst);
            self.is_asleep.store(same >= LONG, SeqCst);
            if same < LONG {
                std::thread::park_timeout(QUIET);
            } else if self.is_in_call() {
                std::thread::park();
            }
            let is_same = self.calls_begun.load(SeqCst) == begun;
            if is_same && !self.is_in_call() {
                self.is_asleep.store(false, SeqCst);
                return;
            }
            same = if is_same { same + 1 } else { 0 };
        }
    }
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
