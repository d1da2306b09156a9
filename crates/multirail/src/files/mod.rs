//! Files and directory trees from one host to another over all rails.
//!
//! Every file is written beside its destination under a name that ends in [`PART_SUFFIX`], its BLAKE3 hash is compared with the
//! sender's, and only then it gets its name. Hashing takes no second pass: both sides hash blocks as they have them in memory.
//! Without [`Options::sync`] the data of a finished file may still be in the system's cache, as with `cp`.
//!
//! Regular files and directories are copied, with permission bits and modification times. Symlinks are neither followed nor
//! copied, special files are left out, and both are named in the [`Report`].
//!
//! Memory does not depend on the number of files or on their size, but for the lists in the report ([`MAX_NAMED`]): at most
//! 256 KiB a channel (32 MiB in all) for blocks, a few hundred KiB for batches, and 100 bytes a gap between hashed blocks.

mod blocks;
pub(crate) mod dir;
pub(crate) mod names;
pub(crate) mod origin;
pub(crate) mod part;
mod receive;
pub(crate) mod report;
mod send;
mod sink;
mod source;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod walk;
pub(crate) mod wire;

pub use part::PART_SUFFIX;
pub use report::{Cause, Failure, MAX_NAMED, Progress, Report, Side, Skipped};

use crate::service::{self, Request};
use crate::{Error, Session, Strategy};
use dir::Dir;
use origin::{Origin, Source};
use receive::Incoming;
use send::{Order, send_all};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target::{Expected, Shape, Target};
use wire::Reply;

/// A request must fit one message.
const MAX_SOURCES_BYTES: usize = 60 << 10;

/// How to copy.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Copy directories and all that is in them; default no.
    pub recursive: bool,
    /// Give no file its name before its content is on the disk; default no. Costs the disk's latency a file.
    pub sync: bool,
    /// How the server shall send in [`get`], with the fragment of the papers' strategies in bytes; default as it is set up. A
    /// [`put`] follows the session's own configuration.
    pub server_strategy: Option<(Strategy, u32)>,
    /// Follow the copy here.
    pub progress: Arc<Progress>,
}

/// Why a copy did not take place, or broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The session failed; files that were not finished are gone.
    #[error(transparent)]
    Session(#[from] Error),
    /// The server does not copy there or from there.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// This host cannot copy there.
    #[error("{0}")]
    Destination(String),
    /// The sources cannot be copied together.
    #[error("{0}")]
    Sources(String),
}

/// [`Request::Put`]'s body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PutRequest {
    destination: Vec<u8>,
    several: bool,
    sync: bool,
}

/// [`Request::Get`]'s body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetRequest {
    sources: Vec<Vec<u8>>,
    recursive: bool,
    strategy: Option<(String, u32)>,
}

/// Copies `sources` of this host to `destination` below the root that the server serves (no leading slash; empty: the root).
///
/// As with `cp`: into the destination if it is a directory, under its name otherwise. Files that fail are in the report, and
/// the others still go through.
pub async fn put(
    session: &mut Session,
    sources: &[PathBuf],
    destination: &Path,
    options: &Options,
) -> Result<Report, CopyError> {
    let order = Order {
        origin: Origin::Local,
        sources: named_sources(sources)?,
        recursive: options.recursive,
        side: Side::Client,
        progress: options.progress.clone(),
        #[cfg(test)]
        tamper: None,
    };
    put_order(session, &order, destination, options.sync).await
}

async fn put_order(session: &mut Session, order: &Order, destination: &Path, sync: bool) -> Result<Report, CopyError> {
    let destination = names::bytes(destination).to_vec();
    let several = order.sources.len() > 1;
    service::send(session, &Request::Put(PutRequest { destination, several, sync })).await?;
    let reply = send::receive_reply(session.split().1).await?;
    if let Some(why) = reply.refused {
        return Err(CopyError::Refused(why));
    }
    Ok(send_all(session, order).await?)
}

/// Copies `sources` below the server's root to `destination` on this host; otherwise as [`put`].
///
/// Nothing is written outside the destination, whatever the server sends, and nothing that was not asked for.
pub async fn get(
    session: &mut Session,
    sources: &[PathBuf],
    destination: &Path,
    options: &Options,
) -> Result<Report, CopyError> {
    let named = named_sources(sources)?;
    let recursive = options.recursive;
    let expected = Expected { tops: named.iter().map(Source::wire_top).collect(), recursive };
    let target = Target::local(destination, shape(destination, named.len() > 1), expected);
    let target = target.map_err(CopyError::Destination)?;
    let sources = sources.iter().map(|s| names::bytes(s).to_vec()).collect();
    let strategy =
        options.server_strategy.map(|(strategy, fragment_bytes)| (strategy.name().to_owned(), fragment_bytes));
    service::send(session, &Request::Get(GetRequest { sources, recursive, strategy })).await?;
    let incoming = Incoming::new(session, target, options.sync, Side::Server, options.progress.clone());
    Ok(incoming.run().await?)
}

/// The server's half of [`put`].
pub(crate) async fn serve_put(session: &mut Session, root: &Path, request: PutRequest) -> Result<(), Error> {
    match put_target(root, &request.destination, request.several) {
        Ok(target) => {
            service::send(session, &Reply::default()).await?;
            let incoming = Incoming::new(session, target, request.sync, Side::Client, Arc::default());
            incoming.run().await.map(drop)
        }
        Err(why) => service::send(session, &Reply { refused: Some(why), ..Reply::default() }).await,
    }
}

/// The place that a client calls `destination`, below the served `root`.
pub(crate) fn put_target(root: &Path, destination: &[u8], several: bool) -> Result<Target, String> {
    let shown = names::shown(destination);
    let plain = names::trim_end(destination);
    let path = names::check_path(plain).map_err(|p| format!("{}: {}", shown.display(), p.reason))?;
    let root = Dir::open(root).map_err(|e| format!("the served folder cannot be opened: {e}"))?;
    Target::below(root, &path, &shown, shape(&shown, several))
}

/// The server's half of [`get`].
pub(crate) async fn serve_get(session: &mut Session, root: &Path, request: GetRequest) -> Result<(), Error> {
    if let Some((name, fragment_bytes)) = &request.strategy {
        let strategy = name.parse().map_err(|e| Error::Protocol(format!("it asks for files by {e}")))?;
        session.set_strategy(strategy, *fragment_bytes);
    }
    let root = Dir::open(root).map_err(Error::io("opening the served folder"))?;
    let sources = request.sources.iter().map(|bytes| Source::new(&names::shown(bytes))).collect();
    let order = Order {
        origin: Origin::Served(root),
        sources,
        recursive: request.recursive,
        side: Side::Server,
        progress: Arc::default(),
        #[cfg(test)]
        tamper: None,
    };
    send_all(session, &order).await.map(drop)
}

/// The sources with the names that they travel under, which must differ.
pub(crate) fn named_sources(paths: &[PathBuf]) -> Result<Vec<Source>, CopyError> {
    if paths.is_empty() {
        return Err(CopyError::Sources("nothing to copy".to_owned()));
    }
    if paths.iter().map(|p| p.as_os_str().len() + 4).sum::<usize>() > MAX_SOURCES_BYTES {
        return Err(CopyError::Sources(
            "too many sources for one copy; copy their directory, or fewer at once".to_owned(),
        ));
    }
    let sources: Vec<Source> = paths.iter().map(|p| Source::new(p)).collect();
    let mut tops: Vec<_> = sources.iter().map(|s| &s.top).collect();
    tops.sort_unstable();
    if let Some(pair) = tops.windows(2).find(|pair| pair[0] == pair[1]) {
        let name = pair[0].display();
        return Err(CopyError::Sources(format!("two sources are called {name}; one would replace the other")));
    }
    Ok(sources)
}

pub(crate) fn shape(destination: &Path, several: bool) -> Shape {
    Shape { several, trailing_slash: names::bytes(destination).ends_with(b"/") }
}
