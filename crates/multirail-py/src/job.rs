//! Work in a thread with a runtime of its own: copies, broadcasts and servers, which move many bytes while a program of
//! Python, or its event loop, does other things.

use crate::error;
use multirail::Error;
use multirail::runtime::block_on;
use pyo3::prelude::*;
use std::convert::Infallible;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a call that is cancelled waits for its thread, which removes unfinished files. Ctrl-C works within 0.2 s.
const ENDS_WITHIN: Duration = Duration::from_millis(100);

/// Work in another thread. Dropping it cancels the work.
pub(crate) struct Job<T> {
    result: oneshot::Receiver<Result<T, Error>>,
    _guard: Guard,
}

struct Guard {
    cancel: Option<oneshot::Sender<Infallible>>,
    ended: mpsc::Receiver<Infallible>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.cancel.take());
        let _ = self.ended.recv_timeout(ENDS_WITHIN);
    }
}

impl<T: Send + 'static> Job<T> {
    /// Starts `work`. Its future stays in the thread, so that it need not be `Send`.
    pub(crate) fn start<F: Future<Output = Result<T, Error>>>(
        py: Python<'_>,
        name: &str,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> PyResult<Self> {
        let (told, result) = oneshot::channel();
        let (cancel, mut cancelled) = oneshot::channel::<Infallible>();
        let (ending, ended) = mpsc::channel::<Infallible>();
        let run = move || {
            let _ending = ending;
            let done = block_on(async {
                tokio::select! {
                    biased;
                    done = work() => done.map(Some),
                    _ = &mut cancelled => Ok(None),
                }
            });
            if let Some(done) = done.transpose() {
                let _ = told.send(done);
            }
        };
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        spawned.map_err(|cause| error::other(py, format!("starting a thread: {cause}")))?;
        Ok(Self { result, _guard: Guard { cancel: Some(cancel), ended } })
    }

    /// Waits for the result.
    pub(crate) async fn done(&mut self) -> Result<T, Error> {
        // A thread that ends without a result has panicked.
        (&mut self.result).await.unwrap_or(Err(Error::Closed))
    }
}
