#![doc = include_str!("../README.md")]
//!
//! # Details
//!
//! The receiver writes each file beside its destination, under a name that ends in [`PART_SUFFIX`].
//! The file gets its own name when its BLAKE3 hash equals the sender's. A part of 8 MiB or more that a
//! stopped copy left is continued by the same copy, and otherwise removed later ([`multirail_tree::part`]). Both sides hash blocks
//! while they are in memory, so hashing takes no second pass. Without [`Options::sync`] the data of
//! a finished file may still be in the system's cache, as with `cp`.
//!
//! The sender announces each entry, and the receiver says which it lacks. A file with the same length and
//! modification time counts as unchanged.
//!
//! Files and directories are copied with their permission bits and modification times. Symbolic links
//! are copied and not followed. Special files are left out; the [`Report`] names them.
//!
//! A copy uses at most 256 KiB of memory for each channel (32 MiB in all) for blocks, a few hundred
//! KiB for batches, and 100 bytes for each gap between hashed blocks. Only the lists in the report
//! grow with the number of files, up to [`MAX_NAMED`] entries and [`MAX_LIST_BYTES`] each.

#![warn(unreachable_pub)]

mod ahead;
mod blocks;
pub mod browse;
mod extents;
mod options;
mod pieces;
mod plan;
mod queue;
mod receive;
mod request;
mod scope;
mod send;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod wire;

pub use multirail_tree::extra::Extras;
pub use multirail_tree::filter::Rule;
pub use multirail_tree::part::PART_SUFFIX;
pub use multirail_tree::report::{Cause, Failure, MAX_LIST_BYTES, MAX_NAMED, Progress, Report, Side, Skipped};
pub use options::{OnChange, Options};
pub use request::FILES;
pub use wire::Change;

use multirail_net::permissions::{Permissions, Right};
use multirail_net::quota::Quota;
use multirail_net::record::Notes;
use multirail_net::request::{Request, send_request};
use multirail_net::router::{Answering, Next, ProtocolHandler};
use multirail_net::{Error, Session};
use multirail_tree::filter::Filter;
use multirail_tree::origin::{Origin, Source, named_sources};
use multirail_tree::root::Root;
use multirail_tree::target::{Expected, Target, put_target, shape};
use multirail_tree::{names, notes};
use options::Terms;
use receive::Incoming;
use request::{FilesRequest, GetRequest, PutRequest};
use scope::Scope;
use send::{Order, send_all};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Reply;

/// Why a copy failed as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The session failed. Unfinished files were removed.
    #[error(transparent)]
    Session(#[from] Error),
    /// The server refuses the source or the destination.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// This host cannot write to the destination.
    #[error("{0}")]
    Destination(String),
    /// The sources cannot be copied together.
    #[error("{0}")]
    Sources(String),
}

/// Copies `sources` of this host to `destination` below the root that the server serves (no leading
/// slash; empty: the root).
///
/// As with `rsync`, each source goes into the destination under its name, and of a source that ends
/// in a slash the content does. The destination is made if it does not exist. A single file gets its
/// name, unless it is a directory or ends in a slash. The report names files that failed; the others are copied.
///
/// # Errors
///
/// [`CopyError`], if nothing was copied or the session failed.
///
/// # Cancel safety
///
/// Dropping the future ends the session. Unfinished files are removed.
pub async fn put(
    session: &mut Session,
    sources: &[PathBuf],
    destination: &Path,
    options: &Options,
) -> Result<Report, CopyError> {
    let terms = options.terms();
    let order = Order {
        origin: Origin::Local,
        sources: named_sources(sources).map_err(CopyError::Sources)?,
        filter: filter(&terms).map_err(CopyError::Sources)?,
        terms,
        on_change: options.dry_run.clone(),
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
    let request = PutRequest { destination, several, sync, terms: order.terms.clone() };
    send_request(session, FILES, &FilesRequest::Put(request)).await?;
    let reply = send::receive_reply(session.split().1).await?;
    if let Some(why) = reply.refused {
        return Err(CopyError::Refused(why));
    }
    Ok(send_all(session, order).await?)
}

/// The rules of a copy, ready to be asked.
fn filter(terms: &Terms) -> Result<Option<Arc<Filter>>, String> {
    Filter::new(&terms.rules).map(|filter| filter.map(Arc::new))
}

/// Copies `sources` below the server's root to `destination` on this host. Otherwise it is like
/// [`put`].
///
/// Whatever the server sends, nothing is written outside the destination, and nothing that was not
/// asked for.
///
/// # Errors
///
/// [`CopyError`], if nothing was copied or the session failed.
///
/// # Cancel safety
///
/// Dropping the future ends the session. Unfinished files are removed.
pub async fn get(
    session: &mut Session,
    sources: &[PathBuf],
    destination: &Path,
    options: &Options,
) -> Result<Report, CopyError> {
    let named = named_sources(sources).map_err(CopyError::Sources)?;
    let (terms, recursive) = (options.terms(), options.recursive);
    let filter = filter(&terms).map_err(CopyError::Sources)?;
    let expected = Expected { tops: named.iter().map(Source::wire_top).collect(), recursive };
    let target = Target::local(destination, shape(destination, named.len() > 1), Some(expected));
    let target = target.map_err(CopyError::Destination)?;
    let sources = sources.iter().map(|s| names::bytes(s).to_vec()).collect();
    let strategy =
        options.server_strategy.map(|(strategy, fragment_bytes)| (strategy.name().to_owned(), fragment_bytes));
    let background = options.server_background;
    let request = GetRequest { sources, terms: terms.clone(), strategy, background };
    send_request(session, FILES, &FilesRequest::Get(request)).await?;
    let order = receive::Order {
        terms,
        filter,
        sync: options.sync,
        sender: Side::Server,
        progress: options.progress.clone(),
        on_change: options.dry_run.clone(),
        permissions: Permissions::default(),
    };
    Ok(Incoming::new(session, target, order).run().await?)
}

/// Serves [`FILES`].
#[derive(Debug)]
pub struct FilesHandler {
    scope: Scope,
}

impl FilesHandler {
    /// Copies to and from the folder `root`, and nothing outside of it.
    pub fn new(root: PathBuf) -> Self {
        Self { scope: Scope::Below(root) }
    }

    /// Copies to and from every path that the user of this process can name, as `cp` does there:
    /// relative paths begin at the working directory, and symbolic links are followed. This is for
    /// clients that may act as this user anyway, for example over ssh.
    pub fn as_user() -> Self {
        Self { scope: Scope::User }
    }
}

/// Reads arbitrary bytes as messages: for the fuzz target `items`.
#[doc(hidden)]
pub fn read_any(bytes: &[u8]) {
    wire::read_any(bytes);
    browse::read_any(bytes);
}

/// Removes what killed servers left below the served folder `root`. A server calls it when it starts.
/// It reads only the folders that those servers were writing to, and leaves files of living copies
/// alone. If it fails, the files stay.
pub fn remove_abandoned(root: &Path) {
    if let Err(error) = notes::clean(root) {
        tracing::warn!(%error, "cannot look for the unfinished files of killed servers");
    }
}

impl ProtocolHandler for FilesHandler {
    fn answer<'a>(&'a self, mut session: Session, _: SocketAddr, request: Request) -> Answering<'a> {
        Box::pin(async move {
            let notes = request.notes().clone();
            match request.parse()? {
                FilesRequest::Put(request) => serve_put(&mut session, &self.scope, request, &notes).await?,
                FilesRequest::Get(request) => serve_get(&mut session, &self.scope, request, &notes).await?,
                FilesRequest::Browse(request) => {
                    let permissions = session.client().permissions.clone();
                    browse::serve(&mut session, (&self.scope, &permissions), request, &notes).await?;
                }
            }
            Ok(Next::Request(session))
        })
    }
}

/// The server's half of [`put`].
async fn serve_put(session: &mut Session, scope: &Scope, request: PutRequest, notes: &Notes) -> Result<(), Error> {
    notes.operation("put");
    notes.path(&request.destination);
    let permissions = session.client().permissions.clone();
    let below = permissions.below().to_owned();
    let PutRequest { destination, several, sync, terms } = request;
    let filter = filter(&terms).map_err(|why| Error::Protocol(format!("a request for files: {why}")))?;
    let shown = names::shown(&destination);
    let target = allowed(&permissions, &terms).and_then(|()| match scope {
        Scope::Below(root) => {
            let root = Root::new(root, permissions.below());
            let mut target = put_target(&root, &destination, several)?;
            if !terms.dry_run {
                target.begin_note(&root);
            }
            Ok(target)
        }
        // A note has no place without a root. A later copy removes what a killed one leaves.
        Scope::User => Target::local(&shown, shape(&shown, several), None),
    });
    // A destination that does not exist may be made a folder.
    let is_new = |target: &Target| target.new_name().is_some();
    let target = target.and_then(|target| {
        let bytes = if is_new(&target) { Quota::cost(0) } else { 0 };
        Ok((permissions.reserve(bytes)?, target))
    });
    match target {
        Ok((reserved, target)) => {
            multirail_net::request::send(session, &Reply::default()).await?;
            let (progress, sender) = (Arc::default(), Side::Client);
            let order = receive::Order { terms, filter, sync, sender, progress, on_change: None, permissions };
            let received = Incoming::new(session, target, order).run().await;
            if let Scope::Below(root) = scope
                && put_target(&Root::new(root, &below), &destination, several).is_ok_and(|target| !is_new(&target))
            {
                reserved.keep();
            }
            note_report(notes, &received?);
            Ok(())
        }
        Err(why) => {
            notes.refused(&why);
            multirail_net::request::send(session, &Reply { refused: Some(why), ..Reply::default() }).await
        }
    }
}

/// Whether a client may send files under these terms. To delete what the source lacks, and to show what
/// would be done, is to tell what is there.
fn allowed(permissions: &Permissions, terms: &Terms) -> Result<(), String> {
    permissions.check(Right::Write)?;
    if terms.dry_run || terms.delete { permissions.check(Right::Read) } else { Ok(()) }
}

/// Notes what a copy did, for the server's records.
fn note_report(notes: &Notes, report: &Report) {
    notes.entries(report.files + report.directories, report.failed_count);
}

/// The server's half of [`get`].
async fn serve_get(session: &mut Session, scope: &Scope, request: GetRequest, notes: &Notes) -> Result<(), Error> {
    notes.operation("get");
    for source in &request.sources {
        notes.path(source);
    }
    let wrong = |why: String| Error::Protocol(format!("a request for files: {why}"));
    if let Some((name, fragment_bytes)) = &request.strategy {
        let strategy = name.parse().map_err(|e| wrong(format!("{e}")))?;
        session.set_strategy(strategy, *fragment_bytes);
    }
    if request.background {
        session.set_background();
    }
    let permissions = &session.client().permissions;
    let origin = match (permissions.check(Right::Read), scope) {
        (Err(why), _) => {
            notes.refused(&why);
            Origin::Refused(why)
        }
        (Ok(()), Scope::Below(root)) => {
            let root = Root::new(root, permissions.below());
            Origin::Served(root.open().map_err(Error::io("opening the served folder"))?)
        }
        (Ok(()), Scope::User) => Origin::Local,
    };
    let sources = request.sources.iter().map(|bytes| Source::new(&names::shown(bytes))).collect();
    let order = Order {
        origin,
        sources,
        filter: filter(&request.terms).map_err(wrong)?,
        terms: request.terms,
        on_change: None,
        side: Side::Server,
        progress: Arc::default(),
        #[cfg(test)]
        tamper: None,
    };
    note_report(notes, &send_all(session, &order).await?);
    Ok(())
}
