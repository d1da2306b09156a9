//! Netlink sockets, by which links, addresses and hooks are listed and changed.

use crate::{Error, Result};
use rtnetlink::Handle;
use std::io;

/// Runs `work` with a netlink socket of the calling thread's network namespace.
pub(crate) async fn with_netlink<T>(work: impl AsyncFnOnce(&mut Handle) -> Result<T>) -> Result<T> {
    let (connection, mut handle, _unsolicited) =
        rtnetlink::new_connection().map_err(Error::io("opening a netlink socket"))?;
    tokio::select! {
        answer = work(&mut handle) => answer,
        () = connection => Err(Error::Io { what: "netlink".into(), reason: io::Error::other("the kernel closed the socket") }),
    }
}

/// For `map_err`: turns an error of netlink into one that says what was being done.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Error {
    let what = what.into();
    move |error| Error::Io { what, reason: into_io(error) }
}

fn into_io(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}
