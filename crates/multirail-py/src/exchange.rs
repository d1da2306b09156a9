//! Sending to one host and receiving from another at the same time, in one call: a step of a collective operation.

use crate::config;
use crate::error::{self, Kind};
use crate::session::{Parts, Session};
use crate::view::View;
use crate::work::{Finish, Work, wait};
use multirail::Error;
use multirail::session::WINDOW_BYTES;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// How long the other direction may go on after one has failed. The peer of that one is alive, and gets the message
/// instead of a session that ends in the middle of it.
const GRACE: Duration = Duration::from_millis(500);

/// Long messages are sent in parts of this length, which sessions copy: a sender does not wait until the receiver has
/// confirmed the part before, and the rails do not become idle between two steps. Two parts may be under way.
const PART_BYTES: usize = WINDOW_BYTES as usize / 2;

/// What happened in one direction.
type Ended<T> = Option<Result<T, Error>>;

/// Send a message to one session, and receive one from another (or the same) into a buffer, at the same time.
///
/// Without a session, that direction is left out. Returns the length of the received message in bytes, 0 without one. If
/// both directions fail, the exception is that of receiving. After timeout seconds, Timeout is raised; its host is one
/// that was waited for.
#[pyfunction]
#[pyo3(signature = (to, message, source, buffer, timeout = None))]
pub(crate) fn exchange(
    py: Python<'_>,
    to: Option<&Session>,
    message: Option<&Bound<'_, PyAny>>,
    source: Option<&Session>,
    buffer: Option<&Bound<'_, PyAny>>,
    timeout: Option<f64>,
) -> PyResult<Py<PyAny>> {
    let to = match (to, message) {
        (Some(to), Some(message)) => Some((to.parts(py)?, View::read_only(message)?)),
        _ => None,
    };
    let source = match (source, buffer) {
        (Some(source), Some(buffer)) => Some((source.parts(py)?, View::writable(buffer)?)),
        _ => None,
    };
    let limit = config::seconds(timeout)?;
    let work: Work = Box::pin(async move {
        let ends = (to.as_ref().map(|(parts, _)| parts.clone()), source.as_ref().map(|(parts, _)| parts.clone()));
        let (mut sent, mut received) = (None, None);
        let both = both(send(to), receive(source), &mut sent, &mut received);
        let is_late = match limit {
            Some(limit) => tokio::time::timeout(limit, both).await.is_err(),
            None => {
                both.await;
                false
            }
        };
        finish(is_late, sent, received, ends)
    });
    wait(py, work)
}

async fn send(to: Option<(Arc<Parts>, View)>) -> Result<(), Error> {
    let Some((parts, view)) = to else { return Ok(()) };
    let sent = async {
        let mut sender = parts.sender.lock().await;
        let sender = sender.as_mut().ok_or(Error::Closed)?;
        let (first, more) = view.bytes().split_at(PART_BYTES.min(view.bytes().len()));
        sender.send_copied(first).await?;
        for part in more.chunks(PART_BYTES) {
            sender.send_copied(part).await?;
        }
        Ok(())
    };
    parts.closing.or(sent).await
}

/// The length is less than that of the buffer if a part is shorter than it should be.
async fn receive(source: Option<(Arc<Parts>, View)>) -> Result<usize, Error> {
    let Some((parts, mut view)) = source else { return Ok(0) };
    let received = async {
        let mut receiving = parts.receiver.lock().await;
        let receiver = &mut receiving.as_mut().ok_or(Error::Closed)?.receiver;
        let bytes = view.bytes_mut();
        let (first, more) = bytes.split_at_mut(PART_BYTES.min(bytes.len()));
        let mut length = receiver.recv(first).await?;
        if length == first.len() {
            for part in more.chunks_mut(PART_BYTES) {
                let part_length = receiver.recv(part).await?;
                length += part_length;
                if part_length < part.len() {
                    break;
                }
            }
        }
        Ok(length)
    };
    parts.closing.or(received).await
}

/// Runs both directions until both are over, or [`GRACE`] after one has failed.
async fn both(
    send: impl Future<Output = Result<(), Error>>,
    receive: impl Future<Output = Result<usize, Error>>,
    sent: &mut Ended<()>,
    received: &mut Ended<usize>,
) {
    let (mut send, mut receive) = (std::pin::pin!(send), std::pin::pin!(receive));
    while sent.is_none() || received.is_none() {
        let has_failed = matches!(sent, Some(Err(_))) || matches!(received, Some(Err(_)));
        tokio::select! {
            biased;
            ended = &mut receive, if received.is_none() => *received = Some(ended),
            ended = &mut send, if sent.is_none() => *sent = Some(ended),
            () = tokio::time::sleep(GRACE), if has_failed => return,
        }
    }
}

fn finish(
    is_late: bool,
    sent: Ended<()>,
    received: Ended<usize>,
    (to, source): (Option<Arc<Parts>>, Option<Arc<Parts>>),
) -> Finish {
    Box::new(move |py| match (sent, received) {
        (_, Some(Err(error))) => Err(exception(py, &error, source.as_deref())),
        (Some(Err(error)), _) => Err(exception(py, &error, to.as_deref())),
        (Some(Ok(())), Some(Ok(length))) => Ok(length.into_pyobject(py)?.into_any().unbind()),
        (_, received) => {
            debug_assert!(is_late, "a direction ended without a result");
            let (end, what) = match received {
                None => (source, "no message has come"),
                Some(_) => (to, "the message was not received"),
            };
            let host = end.as_ref().map(|parts| parts.host.as_str());
            Err(error::make(py, Kind::Timeout, format!("{what} in time"), host))
        }
    })
}

fn exception(py: Python<'_>, error: &Error, end: Option<&Parts>) -> PyErr {
    end.map_or_else(|| error::of(py, error, None), |parts| parts.exception(py, error))
}
