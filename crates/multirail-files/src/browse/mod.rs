//! Looks at the folder that a server serves, and changes its entries, without a copy.
//!
//! A session carries one call at a time. A call that fails with [`BrowseError::Refused`] leaves the session usable for the
//! next one.

pub(super) mod ask;
mod serve;

pub(super) use serve::serve;

use crate::request::{FILES, FilesRequest};
use ask::BrowseRequest;
use multirail_net::payload::VecSink;
use multirail_net::{Error, Session, request};
use multirail_tree::names;
use multirail_tree::stat::Kind;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The most bytes of a file in one message.
const PIECE_BYTES: usize = 4 << 20;
/// The most bytes of a page of a list, within the limit of a message that is sent without waiting.
const PAGE_BYTES: usize = 48 << 10;
/// The first byte of a message with bytes of a file.
const CONTENT: u8 = 0;
/// The first byte of a message with a [`Refusal`].
const REFUSED: u8 = 1;

type Answer<T> = Result<T, Refusal>;

/// A part of the entries of a directory.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Page {
    entries: Vec<Entry>,
    is_last: bool,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, a socket, a pipe, or a symbolic link to nothing that may be seen.
    Other,
}

/// An entry of a directory. If it is a symbolic link, all but the name is that of what the link leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    name: Vec<u8>,
    /// Its type.
    pub kind: EntryKind,
    /// The length of a file, in bytes.
    pub bytes: u64,
    /// The modification time: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// The permission bits.
    pub mode: u32,
    /// Whether it is a symbolic link.
    pub is_link: bool,
}

impl Entry {
    /// The name in its directory; that of the served folder is empty.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
}

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RefusalKind {
    /// Nothing has the path.
    NotFound,
    /// Something has the path already.
    Exists,
    /// A name on the path is not a directory.
    NotDirectory,
    /// It is a directory.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The path, or the operation, is not allowed.
    NotAllowed,
    /// The file became shorter while it was read.
    Changed,
    /// Another reason.
    Other,
}

/// Why a server does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the server refuses: {reason}")]
#[non_exhaustive]
pub struct Refusal {
    /// The kind.
    pub kind: RefusalKind,
    /// The reason in words.
    pub reason: String,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowseError {
    /// The session failed.
    #[error(transparent)]
    Session(#[from] Error),
    /// The server refuses. The session can be used.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// What a server knows of `path`, below the folder that it serves (no leading slash; empty: the folder). A symbolic link
/// that stays below is followed.
///
/// # Errors
///
/// [`BrowseError`]; the server refuses without the right to read.
///
/// # Cancel safety
///
/// Dropping the future leaves an answer in the session, which must be dropped, too.
pub async fn stat(session: &mut Session, path: &Path) -> Result<Entry, BrowseError> {
    ask(session, BrowseRequest::Stat { path: names::bytes(path).to_vec() }).await?;
    let mut entry: Entry = receive(session).await?;
    entry.name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    Ok(entry)
}

/// The entries of the directory `path`, in the order of the server's file system. Files of unfinished copies are left out.
///
/// # Errors
///
/// [`BrowseError`]; the server refuses without the right to read. [`Error::Protocol`] if there are more than `max_entries`;
/// then the session must be dropped.
///
/// # Cancel safety
///
/// That of [`stat`].
pub async fn list(session: &mut Session, path: &Path, max_entries: usize) -> Result<Vec<Entry>, BrowseError> {
    ask(session, BrowseRequest::List { path: names::bytes(path).to_vec() }).await?;
    let mut entries = Vec::new();
    loop {
        let page: Page = receive(session).await?;
        page.check()?;
        if page.entries.len() > max_entries - entries.len() {
            let path = path.display();
            return Err(Error::Protocol(format!("{path} has more than {max_entries} entries, the limit")).into());
        }
        entries.extend(page.entries);
        if page.is_last {
            return Ok(entries);
        }
    }
}

impl Page {
    /// A server that sends empty pages without end would hold the client up, and a name with a slash could lead a program
    /// out of its own folder.
    fn check(&self) -> Result<(), Error> {
        if self.entries.is_empty() && !self.is_last {
            return Err(Error::Protocol("an empty page of a list".to_owned()));
        }
        self.entries.iter().try_for_each(|entry| {
            names::check_name(&entry.name).map_err(|why| Error::Protocol(format!("a list with a wrong name: {why}")))
        })
    }
}

/// At most `length` bytes of the file `path`, from the byte `start`. Fewer only at the end of the file, and none behind it.
///
/// Memory grows with what has arrived. Whole files are faster with [`get`](super::get), which hashes them, too.
///
/// # Errors
///
/// [`BrowseError`]; the server refuses without the right to read, and if the file becomes shorter meanwhile.
///
/// # Cancel safety
///
/// That of [`stat`].
pub async fn read(session: &mut Session, path: &Path, start: u64, length: u64) -> Result<Vec<u8>, BrowseError> {
    ask(session, BrowseRequest::Read { path: names::bytes(path).to_vec(), start, length }).await?;
    let total_bytes: u64 = receive(session).await?;
    if total_bytes > length {
        return Err(Error::Protocol(format!("{total_bytes} bytes of a file, and {length} were wanted")).into());
    }
    let (mut content, mut sink) = (Vec::new(), VecSink::new(PIECE_BYTES as u64 + 1));
    while (content.len() as u64) < total_bytes {
        session.recv_into(&mut sink).await?;
        let left_bytes = total_bytes - content.len() as u64;
        match sink.bytes.split_first() {
            Some((&CONTENT, piece)) if !piece.is_empty() && piece.len() as u64 <= left_bytes => {
                content.extend_from_slice(piece);
            }
            Some((&REFUSED, refusal)) => return Err(decode::<Refusal>(refusal)?.into()),
            _ => return Err(Error::Protocol("an invalid piece of a file".to_owned()).into()),
        }
    }
    Ok(content)
}

/// Makes the directory `path`. The one that it is in exists.
///
/// # Errors
///
/// [`BrowseError`]; the server refuses without the right to write, and if something has the path.
///
/// # Cancel safety
///
/// That of [`stat`]. The directory may exist afterwards.
pub async fn make_dir(session: &mut Session, path: &Path) -> Result<(), BrowseError> {
    ask(session, BrowseRequest::MakeDir { path: names::bytes(path).to_vec() }).await?;
    receive(session).await
}

/// Removes `path`: a file, a symbolic link, an empty directory, or with `recursive` a directory and everything below it.
/// Symbolic links below it are not followed.
///
/// # Errors
///
/// [`BrowseError`]; the server refuses without the rights to read and to write, since its answer tells what there was.
///
/// # Cancel safety
///
/// That of [`stat`]. The server goes on with what it has begun.
pub async fn remove(session: &mut Session, path: &Path, recursive: bool) -> Result<(), BrowseError> {
    ask(session, BrowseRequest::Remove { path: names::bytes(path).to_vec(), recursive }).await?;
    receive(session).await
}

async fn ask(session: &mut Session, request: BrowseRequest) -> Result<(), Error> {
    request::send_request(session, FILES, &FilesRequest::Browse(request)).await
}

async fn receive<T: DeserializeOwned>(session: &mut Session) -> Result<T, BrowseError> {
    Ok(request::receive::<Answer<T>>(session).await??)
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Protocol("an invalid answer about files".to_owned()))
}

impl From<Kind> for EntryKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::File => EntryKind::File,
            Kind::Directory => EntryKind::Directory,
            Kind::Symlink | Kind::Special => EntryKind::Other,
        }
    }
}

/// Reads arbitrary bytes as answers: for fuzzing. No name that is accepted leads elsewhere.
pub(super) fn read_any(bytes: &[u8]) {
    if let Ok(Ok(page)) = decode::<Answer<Page>>(bytes)
        && page.check().is_ok()
    {
        for Entry { name, .. } in page.entries {
            let name = OsString::from_vec(name);
            assert_eq!(Path::new(&name).file_name(), Some(&*name), "a plain name");
        }
    }
    let _ = decode::<Answer<Entry>>(bytes);
    let _ = decode::<BrowseRequest>(bytes);
}
