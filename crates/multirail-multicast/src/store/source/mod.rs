//! The store of the root: the files themselves, which are only read.

use crate::store::api::{Store, Written};
use crate::store::error::StoreError;
use crate::store::error::{MAX_ENTRIES, ManifestError};
use crate::store::files::OpenFiles;
use crate::store::manifest::scan::map_pieces;
use crate::store::manifest::{Entry, EntryKind, Layout, Manifest, Span, cut};
use multirail_net::sync::lock;
use multirail_proto::multicast::{PieceSet, Pieces};
use multirail_tree::dir::Dir;
use multirail_tree::meta::Meta;
use multirail_tree::names;
use multirail_tree::origin::{Opened, Origin, Source};
use multirail_tree::report::{Progress, Report};
use multirail_tree::walk::{Found, Walk};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How to read sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceOptions {
    /// Whether to take directories with their content; default no.
    pub recursive: bool,
    /// The size of a piece in bytes, a power of two between 16 KiB and 1 MiB. Default: a size that
    /// makes some thousand pieces.
    pub piece_bytes: Option<u32>,
    /// Counts the bytes that are hashed.
    pub progress: Arc<Progress>,
}

/// Files and trees of this host. Reading does not verify hashes, but a file whose length or
/// modification time has changed since the manifest was made gives [`StoreError::Changed`].
#[derive(Debug)]
pub(crate) struct SourceStore {
    manifest: Arc<Manifest>,
    files: SourceFiles,
    /// What was left out on purpose.
    skipped: Report,
}

/// The files, before and after there is a manifest of them.
#[derive(Debug)]
struct SourceFiles {
    tops: Vec<Top>,
    open: Mutex<OpenFiles>,
}

/// One source.
#[derive(Debug)]
struct Top {
    /// Its entry. All entries up to the next source are below it.
    entry: u32,
    /// The path as the user gave it.
    shown: PathBuf,
    at: At,
}

#[derive(Debug)]
enum At {
    File(Arc<File>),
    Dir(Dir),
}

/// A file that was found, before it has an entry.
struct FoundEntry {
    path: Vec<u8>,
    kind: EntryKind,
    meta: Meta,
}

impl SourceStore {
    /// Reads all of `sources` once, with one thread for each core, and makes their manifest.
    ///
    /// Paths begin with the names of the sources, as in a copy; the names must differ. Symlinks and
    /// special files are left out ([`Report::skipped`]). A file that cannot be read, or that
    /// changes meanwhile, is an error: a broadcast sends everything or nothing.
    pub(crate) fn open(sources: &[PathBuf], options: &SourceOptions) -> Result<Self, StoreError> {
        let (files, entries, skipped) = list(sources, options.recursive)?;
        let total_bytes = entries.iter().try_fold(0u64, |sum, e| sum.checked_add(e.total_bytes()));
        let pieces = cut(total_bytes.ok_or(ManifestError::TooLong)?, options.piece_bytes)?;
        let manifest = files.hash(pieces, entries, &options.progress)?;
        Ok(Self { manifest: Arc::new(manifest), files, skipped })
    }
}

impl Store for SourceStore {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn held(&self) -> PieceSet {
        PieceSet::all(self.manifest.pieces().count())
    }

    fn write(&self, piece: u32, bytes: &[u8]) -> Result<Written, StoreError> {
        self.manifest.check(piece, bytes).map(|()| Written::Already)
    }

    fn read(&self, piece: u32, offset: u32, buffer: &mut [u8]) -> Result<(), StoreError> {
        let range = self.manifest.stretch(piece, offset, buffer.len())?;
        self.manifest.spans(range).try_for_each(|span| self.files.read(&self.manifest, &span, buffer))
    }

    fn finish(&self) -> Result<Report, StoreError> {
        let mut report = self.skipped.clone();
        report.bytes = self.manifest.pieces().total_bytes;
        let directories = self.manifest.entries().iter().filter(|e| e.kind() == EntryKind::Directory).count();
        report.directories = directories as u64;
        report.files = (self.manifest.entries().len() - directories) as u64;
        Ok(report)
    }
}

impl SourceFiles {
    /// The manifest from all bytes. A manifest without hashes is enough to find the bytes.
    fn hash(&self, pieces: Pieces, entries: Vec<Entry>, progress: &Progress) -> Result<Manifest, StoreError> {
        let unknown = vec![[0; 32]; pieces.count() as usize];
        let layout = Manifest::new(pieces, unknown, Layout::Files(entries))?;
        progress.expect(pieces.total_bytes);
        let hashes = map_pieces(&pieces, |piece, buffer| {
            layout.spans(pieces.range(piece)).try_for_each(|span| self.read(&layout, &span, buffer))?;
            progress.add_bytes(buffer.len() as u64);
            Ok::<_, StoreError>(Some(*blake3::hash(buffer).as_bytes()))
        })?;
        Ok(layout.with_hashes(hashes.into_iter().map(|(_, hash)| hash).collect())?)
    }

    /// Reads the part of `buffer` that is in one file. The file must be unchanged before and after.
    fn read(&self, manifest: &Manifest, span: &Span, buffer: &mut [u8]) -> Result<(), StoreError> {
        let stat = self.file(manifest, span.entry).and_then(|file| {
            file.read_exact_at(&mut buffer[span.part.clone()], span.offset)?;
            file.metadata()
        });
        let stat = stat.map_err(|e| StoreError::io(&self.shown(manifest, span.entry), &e))?;
        let changed = |reason: &str| {
            let (path, reason) = (self.shown(manifest, span.entry), reason.to_owned());
            Err(StoreError::Changed { path, reason })
        };
        let entry = &manifest.entries()[span.entry as usize];
        if !stat.is_file() || stat.len() != entry.total_bytes() {
            return changed("its length has changed");
        }
        if (stat.mtime(), stat.mtime_nsec()) != (entry.meta.mtime_s, i64::from(entry.meta.mtime_ns)) {
            return changed("it was written to");
        }
        Ok(())
    }

    fn file(&self, manifest: &Manifest, entry: u32) -> io::Result<Arc<File>> {
        let top = self.top(entry);
        let dir = match &top.at {
            At::File(file) => return Ok(file.clone()),
            At::Dir(dir) => dir,
        };
        if let Some(file) = lock(&self.open).get(entry) {
            return Ok(file);
        }
        let file = dir.open_file(&below(manifest, entry))?;
        Ok(lock(&self.open).insert(entry, file))
    }

    fn top(&self, entry: u32) -> &Top {
        let behind = self.tops.partition_point(|top| top.entry <= entry);
        &self.tops[behind.saturating_sub(1)]
    }

    fn shown(&self, manifest: &Manifest, entry: u32) -> PathBuf {
        match self.top(entry) {
            Top { at: At::File(_), shown, .. } => shown.clone(),
            Top { shown, .. } => shown.join(below(manifest, entry)),
        }
    }
}

/// The path of an entry within its source.
fn below(manifest: &Manifest, entry: u32) -> PathBuf {
    let path = manifest.wire_path(entry);
    let name = path.iter().position(|b| *b == b'/').map_or(path.len(), |slash| slash + 1);
    names::shown(&path[name..])
}

/// Opens the sources and lists their content without reading it.
fn list(sources: &[PathBuf], recursive: bool) -> Result<(SourceFiles, Vec<Entry>, Report), StoreError> {
    let named = multirail_tree::origin::named_sources(sources).map_err(StoreError::Destination)?;
    let (mut opened, mut found, mut skipped) = (Vec::new(), Vec::new(), Report::default());
    for source in &named {
        opened.push((source, open(source, recursive, &mut found, &mut skipped)?));
    }
    let entries = in_order(found);
    let entry_of = |source: &Source| {
        let name = names::bytes(Path::new(&source.top));
        entries.iter().position(|e| e.parent.is_none() && *e.name == *name).unwrap_or(0) as u32
    };
    let top = |(source, at): (&Source, At)| Top { entry: entry_of(source), shown: source.path.clone(), at };
    let mut tops: Vec<Top> = opened.into_iter().map(top).collect();
    tops.sort_unstable_by_key(|top| top.entry);
    Ok((SourceFiles { tops, open: Mutex::default() }, entries, skipped))
}

/// Opens a source and lists its content.
fn open(source: &Source, recursive: bool, found: &mut Vec<FoundEntry>, skipped: &mut Report) -> Result<At, StoreError> {
    let fail = |reason: &str| Err(StoreError::Io { path: source.path.clone(), reason: reason.to_owned() });
    let top = names::bytes(Path::new(&source.top));
    match Origin::Local.open(&source.path).map_err(|p| StoreError::problem(&source.path, p))? {
        Opened::Special => fail("it is neither a file nor a directory"),
        Opened::File(file) => {
            let (kind, meta) = describe(&file).map_err(|e| StoreError::io(&source.path, &e))?;
            found.push(FoundEntry { path: top.to_vec(), kind, meta });
            Ok(At::File(Arc::new(file)))
        }
        Opened::Dir(_) if !recursive => fail("it is a directory, and the broadcast is not recursive"),
        Opened::Dir(dir) => {
            let again = dir.open_dir(Path::new("")).map_err(|e| StoreError::io(&source.path, &e))?;
            walk(source, Walk::new(again, top), found, skipped)?;
            Ok(At::Dir(dir))
        }
    }
}

fn walk(source: &Source, mut walk: Walk, found: &mut Vec<FoundEntry>, skipped: &mut Report) -> Result<(), StoreError> {
    let top_bytes = source.top.len() + 1;
    let shown = |path: &[u8]| source.path.join(names::shown(path.get(top_bytes..).unwrap_or_default()));
    while let Some(next) = walk.find_next() {
        let path = walk.path().to_vec();
        let (kind, meta) = match next {
            Found::Directory => continue,
            Found::DirectoryEnd(meta) => (EntryKind::Directory, meta),
            Found::File(_) => {
                walk.open().and_then(|file| describe(&file)).map_err(|e| StoreError::io(&shown(&path), &e))?
            }
            Found::Symlink(_) => {
                skipped.skip(&names::shown(&path), "a symlink");
                continue;
            }
            Found::Other(what) => {
                skipped.skip(&names::shown(&path), what);
                continue;
            }
            Found::Failed(problem) => return Err(StoreError::problem(&shown(&path), problem)),
        };
        if found.len() >= MAX_ENTRIES {
            return Err(ManifestError::TooMany.into());
        }
        found.push(FoundEntry { path, kind, meta });
    }
    Ok(())
}

fn describe(file: &File) -> io::Result<(EntryKind, Meta)> {
    let stat = file.metadata()?;
    if !stat.is_file() {
        return Err(io::Error::other("it is no longer a file"));
    }
    let meta = Meta { mode: stat.mode() & 0o777, mtime_s: stat.mtime(), mtime_ns: stat.mtime_nsec() as u32 };
    Ok((EntryKind::File { total_bytes: stat.len() }, meta))
}

/// Entries in the order of a manifest: depth first, by names.
fn in_order(mut found: Vec<FoundEntry>) -> Vec<Entry> {
    // No name has a NUL byte, which is less than any other: the content of a directory follows it
    // directly.
    let key = |path: &[u8]| path.iter().map(|b| if *b == b'/' { 0 } else { *b }).collect::<Vec<u8>>();
    found.sort_by_cached_key(|f| key(&f.path));
    let mut entries: Vec<Entry> = Vec::with_capacity(found.len());
    // The directories of the entry before, including itself.
    let mut open: Vec<usize> = Vec::new();
    for (index, FoundEntry { path, kind, meta }) in found.iter().enumerate() {
        let is_in = |dir: usize| path.strip_prefix(&found[dir].path[..]).is_some_and(|rest| rest.starts_with(b"/"));
        while open.pop_if(|dir| !is_in(*dir)).is_some() {}
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let parent = open.last().map(|dir| *dir as u32);
        entries.push(Entry { parent, name: name.into(), kind: *kind, meta: *meta });
        if *kind == EntryKind::Directory {
            open.push(index);
        }
    }
    entries
}

#[cfg(test)]
mod tests;
