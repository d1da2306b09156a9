//! `write`: writes all buffers to a file below the served folder, in the order of their tags.
//!
//! Buffers arrive in any order. They are written in that order to a temporary file, with an index
//! of their places. At the end of the unit of work, the file is sorted if necessary, and renamed.

use super::read;
use crate::filters::Parameters;
use crate::runtime::{CopyInfo, Failure, Filter, Io, UnitOfWork};
use multirail_tree::dir::Dir;
use multirail_tree::meta::Meta;
use multirail_tree::part::Part;
use multirail_tree::root::Root;
use multirail_tree::space::check_room;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Most runs of buffers with consecutive tags. Each takes 32 bytes of memory.
const MAX_RUNS: usize = 16 << 20;
/// Bytes that are copied at a time while a file is sorted.
const COPY_BYTES: usize = 1 << 20;
/// Permissions of the new file.
const MODE: u32 = 0o644;

/// Writes a file. There is only one copy.
pub(super) struct Write {
    root: Arc<Root>,
    path: PathBuf,
    part: Option<(Arc<Dir>, Part)>,
    index: Index,
}

/// The places of the buffers in the temporary file.
#[derive(Debug, Default)]
struct Index {
    runs: Vec<Run>,
    bytes: u64,
}

/// Buffers that arrived one after the other and have consecutive tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first_tag: u64,
    last_tag: u64,
    start: u64,
    bytes: u64,
}

impl Write {
    pub(super) fn new(parameters: &Value, info: &CopyInfo, root: Arc<Root>) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let file: String = parameters.need("file")?;
        parameters.end()?;
        if info.copies != 1 {
            return Err(format!("it has {} copies, and only one can write a file", info.copies).into());
        }
        Ok(Self { root, path: read::path(&file)?, part: None, index: Index::default() })
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; nothing of it was kept",
            io::ErrorKind::NotFound => "; its folder must be there",
            _ => "",
        };
        format!("cannot write {}: {error}{hint}", self.path.display()).into()
    }

    fn create(&self) -> io::Result<(Arc<Dir>, Part)> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let dir = Arc::new(self.root.open()?.open_dir(folder)?);
        let part = Part::create(dir.clone(), self.name())?;
        Ok((dir, part))
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Sorts the file and gives it its name.
    fn finish(&mut self) -> io::Result<()> {
        let Some((dir, mut part)) = self.part.take() else { return Ok(()) };
        if !self.index.is_ordered() {
            let ordered = Part::create(dir, self.name())?;
            check_room(ordered.file(), self.index.bytes)?;
            self.index.copy(part.file(), ordered.file())?;
            part = ordered;
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        part.commit(&Meta { mode: MODE, mtime_s: now.as_secs() as i64, mtime_ns: now.subsec_nanos() }, false)
    }
}

impl Filter for Write {
    fn init(&mut self, _: &UnitOfWork) -> Result<(), Failure> {
        self.index = Index::default();
        self.part = Some(self.create().map_err(|e| self.failed(&e))?);
        Ok(())
    }

    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        while let Some(received) = io.read()? {
            let Some((_, part)) = &self.part else { return Err("it has no open file".into()) };
            part.file().write_all_at(&received.body, self.index.bytes).map_err(|e| self.failed(&e))?;
            if !self.index.add(received.tag, received.body.len() as u64) {
                return Err(format!("more than {MAX_RUNS} buffers arrived out of order; make chunks larger").into());
            }
        }
        Ok(())
    }

    fn finalize(&mut self) -> Result<(), Failure> {
        self.finish().map_err(|e| self.failed(&e))
    }
}

impl Index {
    /// Adds a buffer that was written at the end of the file. Returns false if the index is full.
    fn add(&mut self, tag: u64, bytes: u64) -> bool {
        let (start, count) = (self.bytes, self.runs.len());
        self.bytes += bytes;
        match self.runs.last_mut() {
            Some(last) if last.last_tag.checked_add(1) == Some(tag) => {
                last.last_tag = tag;
                last.bytes += bytes;
            }
            _ if count >= MAX_RUNS => return false,
            _ => self.runs.push(Run { first_tag: tag, last_tag: tag, start, bytes }),
        }
        true
    }

    fn is_ordered(&self) -> bool {
        self.runs.is_sorted_by_key(|r| r.first_tag)
    }

    /// Copies the buffers in order. Buffers with equal tags stay in the order of arrival.
    fn copy(&mut self, from: &File, to: &File) -> io::Result<()> {
        self.runs.sort_by_key(|r| r.first_tag);
        let mut some = vec![0; COPY_BYTES];
        let mut at = 0;
        for run in &self.runs {
            let mut done = 0;
            while done < run.bytes {
                let length = (run.bytes - done).min(COPY_BYTES as u64) as usize;
                from.read_exact_at(&mut some[..length], run.start + done)?;
                to.write_all_at(&some[..length], at)?;
                done += length as u64;
                at += length as u64;
            }
        }
        Ok(())
    }
}
