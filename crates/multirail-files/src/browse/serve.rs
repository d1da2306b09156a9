//! The server's half.

use super::ask::BrowseRequest;
use super::{Answer, CONTENT, Entry, EntryKind, PAGE_BYTES, PIECE_BYTES, Page, REFUSED, Refusal, RefusalKind};
use crate::scope::Scope;
use multirail_net::permissions::{Permissions, Right};
use multirail_net::quota::Quota;
use multirail_net::record::Notes;
use multirail_net::{Error, Session, request};
use multirail_tree::dir::{Dir, Entries, Kind};
use multirail_tree::names;
use multirail_tree::report::{Cause, Problem, read_problem};
use multirail_tree::root::Root;
use multirail_tree::stat::Stat;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How many entries are found before they are removed. A directory is not read while it changes.
const AT_ONCE: usize = 4096;
/// The deepest level that is removed.
const MAX_DEPTH: usize = 200;
/// What an entry takes on the wire beside its name, at most.
const ENTRY_BYTES: usize = 48;

/// Answers one request.
pub(crate) async fn serve(
    session: &mut Session,
    (scope, permissions): (&Scope, &Permissions),
    asked: BrowseRequest,
    notes: &Notes,
) -> Result<(), Error> {
    let (name, path, rights) = match &asked {
        BrowseRequest::Stat { path } => ("stat", path, &[Right::Read][..]),
        BrowseRequest::List { path } => ("list", path, &[Right::Read][..]),
        BrowseRequest::Read { path, .. } => ("read", path, &[Right::Read][..]),
        BrowseRequest::MakeDir { path } => ("mkdir", path, &[Right::Write][..]),
        // The answer tells what there was.
        BrowseRequest::Remove { path, .. } => ("remove", path, &[Right::Write, Right::Read][..]),
    };
    notes.operation(name);
    notes.path(path);
    let place = rights.iter().try_for_each(|right| permissions.check(*right)).map_err(not_allowed);
    let place = place.and_then(|()| Place::new(scope, permissions, path));
    let refused = match (place, asked) {
        (Err(refusal), _) => answer(session, Answer::<()>::Err(refusal)).await?,
        (Ok(place), BrowseRequest::Stat { .. }) => answer(session, place.stat()).await?,
        (Ok(place), BrowseRequest::List { .. }) => match place.begin_list() {
            Ok(list) => list.send(session).await?,
            Err(refusal) => answer(session, Answer::<()>::Err(refusal)).await?,
        },
        (Ok(place), BrowseRequest::Read { start, length, .. }) => match place.open() {
            Ok((file, bytes)) => {
                let length = length.min(bytes.saturating_sub(start));
                answer(session, Ok(length)).await?;
                send_range(session, &file, start, length).await?
            }
            Err(refusal) => answer(session, Answer::<()>::Err(refusal)).await?,
        },
        (Ok(place), BrowseRequest::MakeDir { .. }) => answer(session, place.make_dir(permissions)).await?,
        (Ok(place), BrowseRequest::Remove { recursive, .. }) => {
            let removed = tokio::task::spawn_blocking(move || place.remove(recursive)).await;
            let removed = removed.unwrap_or_else(|error| Err(other(error.to_string())));
            answer(session, removed).await?
        }
    };
    if let Some(why) = refused {
        notes.refused(&why);
    }
    Ok(())
}

/// Sends an answer, and returns the reason of a refusal.
async fn answer<T: Serialize>(session: &mut Session, answer: Answer<T>) -> Result<Option<String>, Error> {
    request::send(session, &answer).await?;
    Ok(answer.err().map(|refusal| refusal.reason))
}

/// Sends `length` bytes from `start`, or why they end before.
async fn send_range(session: &mut Session, file: &File, mut start: u64, length: u64) -> Result<Option<String>, Error> {
    let end = start + length;
    let mut piece = vec![CONTENT; 1 + PIECE_BYTES.min(length as usize)];
    while start < end {
        let bytes = PIECE_BYTES.min((end - start) as usize);
        if let Err(error) = file.read_exact_at(&mut piece[1..=bytes], start) {
            let refusal = Refusal::of(read_problem(&error), &error);
            let encoded = postcard::to_extend(&refusal, vec![REFUSED])
                .map_err(|error| Error::Protocol(format!("a refusal cannot be encoded: {error}")))?;
            session.send(&encoded).await?;
            return Ok(Some(refusal.reason));
        }
        session.send(&piece[..=bytes]).await?;
        start += bytes as u64;
    }
    Ok(None)
}

impl Refusal {
    fn of(Problem { cause, reason }: Problem, error: &io::Error) -> Self {
        use io::ErrorKind as Io;
        let kind = match error.kind() {
            _ if cause == Cause::Refused => RefusalKind::NotAllowed,
            Io::UnexpectedEof => RefusalKind::Changed,
            Io::NotFound => RefusalKind::NotFound,
            Io::AlreadyExists => RefusalKind::Exists,
            Io::NotADirectory => RefusalKind::NotDirectory,
            Io::IsADirectory => RefusalKind::IsDirectory,
            Io::DirectoryNotEmpty => RefusalKind::NotEmpty,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => RefusalKind::NotAllowed,
            _ => RefusalKind::Other,
        };
        Self { kind, reason }
    }
}

fn not_allowed(reason: String) -> Refusal {
    Refusal { kind: RefusalKind::NotAllowed, reason }
}

fn other(reason: String) -> Refusal {
    Refusal { kind: RefusalKind::Other, reason }
}

fn reading(error: io::Error) -> Refusal {
    Refusal::of(Problem::io(Cause::Read, &error), &error)
}

fn writing(error: io::Error) -> Refusal {
    Refusal::of(Problem::io(Cause::Write, &error), &error)
}

/// A path below the folder that the client sees.
struct Place {
    root: Dir,
    path: PathBuf,
}

impl Place {
    fn new(scope: &Scope, permissions: &Permissions, path: &[u8]) -> Answer<Self> {
        let Scope::Below(root) = scope else { return Err(not_allowed("this server only copies files".to_owned())) };
        let path = names::check_path(names::trim_end(path)).map_err(|problem| not_allowed(problem.reason))?;
        let root = Root::new(root, permissions.below()).open();
        let root = root.map_err(|error| other(format!("the served folder cannot be opened: {error}")))?;
        Ok(Self { root, path })
    }

    fn stat(&self) -> Answer<Entry> {
        Ok(entry(&[], &self.root.stat(&self.path).map_err(reading)?, false))
    }

    fn begin_list(self) -> Answer<List> {
        let dir = self.root.open_dir(&self.path).map_err(reading)?;
        let entries = dir.entries().map_err(reading)?;
        Ok(List { place: self, dir, entries })
    }

    /// The file and its length.
    fn open(&self) -> Answer<(File, u64)> {
        let check = |kind: Kind| match kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(Refusal { kind: RefusalKind::IsDirectory, reason: "it is a directory".to_owned() }),
            kind => Err(other(format!("it is {}", kind.name()))),
        };
        // Before it is opened: that may have an effect on a device.
        check(self.root.kind(&self.path).map_err(reading)?)?;
        let file = self.root.open_file(&self.path).map_err(reading)?;
        let stat = Stat::from(&file.metadata().map_err(reading)?);
        check(stat.kind)?;
        Ok((file, stat.bytes))
    }

    fn make_dir(&self, permissions: &Permissions) -> Answer<()> {
        let (parent, name) = self.parent()?;
        let reserved = permissions.reserve(Quota::cost(0)).map_err(not_allowed)?;
        parent.make_own_dir(name).map_err(writing)?;
        reserved.keep();
        Ok(())
    }

    fn remove(&self, recursive: bool) -> Answer<()> {
        let (parent, name) = self.parent()?;
        remove(&parent, name, recursive, 0).map_err(writing)
    }

    /// The directory of the entry, and its name there.
    fn parent(&self) -> Answer<(Dir, &OsStr)> {
        let name = self.path.file_name().ok_or_else(|| not_allowed("it is the served folder itself".to_owned()))?;
        let parent = self.path.parent().unwrap_or(Path::new(""));
        Ok((self.root.open_dir(parent).map_err(writing)?, name))
    }
}

/// Removes `name`, and with `recursive` what is below it.
fn remove(dir: &Dir, name: &OsStr, recursive: bool, depth: usize) -> io::Result<()> {
    match dir.kind_of(name)? {
        None => return Err(io::ErrorKind::NotFound.into()),
        Some(Kind::Directory) if !recursive => return dir.remove_dir(name),
        Some(Kind::Directory) => {}
        Some(_) => return dir.remove_file(name),
    }
    if depth >= MAX_DEPTH {
        return Err(io::Error::other(format!("directories deeper than {MAX_DEPTH} are not removed")));
    }
    let below = dir.child_dir(name)?;
    loop {
        let names: Vec<OsString> = below.entries()?.take(AT_ONCE).collect::<io::Result<_>>()?;
        for child in &names {
            remove(&below, child, true, depth + 1)?;
        }
        if names.len() < AT_ONCE {
            return dir.remove_dir(name);
        }
    }
}

/// A directory that is being read.
struct List {
    place: Place,
    dir: Dir,
    entries: Entries,
}

impl List {
    async fn send(mut self, session: &mut Session) -> Result<Option<String>, Error> {
        loop {
            let page = self.next_page();
            let is_last = page.as_ref().map_or(true, |page| page.is_last);
            let refused = answer(session, page).await?;
            if is_last {
                return Ok(refused);
            }
        }
    }

    fn next_page(&mut self) -> Answer<Page> {
        let (mut page, mut bytes) = (Page::default(), 0);
        while bytes + names::MAX_NAME_BYTES + ENTRY_BYTES <= PAGE_BYTES {
            let Some(name) = self.entries.next() else {
                page.is_last = true;
                break;
            };
            let name = name.map_err(reading)?;
            if names::is_unfinished(&name) {
                continue;
            }
            if let Some(entry) = self.entry(&name)? {
                bytes += entry.name.len() + ENTRY_BYTES;
                page.entries.push(entry);
            }
        }
        Ok(page)
    }

    /// The entry, unless it was removed meanwhile.
    fn entry(&self, name: &OsStr) -> Answer<Option<Entry>> {
        let Some(stat) = self.dir.stat_of(name).map_err(reading)? else { return Ok(None) };
        if stat.kind != Kind::Symlink {
            return Ok(Some(entry(name.as_bytes(), &stat, false)));
        }
        let seen = self.place.root.stat(&self.place.path.join(name));
        Ok(Some(entry(name.as_bytes(), &seen.unwrap_or(stat), true)))
    }
}

fn entry(name: &[u8], stat: &Stat, is_link: bool) -> Entry {
    let kind = EntryKind::from(stat.kind);
    Entry {
        name: name.to_vec(),
        kind,
        bytes: if kind == EntryKind::File { stat.bytes } else { 0 },
        modified: (stat.meta.mtime_s, stat.meta.mtime_ns),
        mode: stat.meta.mode,
        is_link,
    }
}
