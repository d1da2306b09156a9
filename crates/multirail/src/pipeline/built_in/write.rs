//! `write`: a file below the served folder, of all buffers in the order of their tags.
//!
//! Buffers come in any order. They are written as they come, into a file that has not its name yet, and what was written where is
//! remembered; at the end of the unit of work the file is put into order, if it is not, and gets its name.

use super::super::filter::{Failure, Filter, Place, Unit};
use super::super::io::Io;
use super::parameters::Parameters;
use super::read;
use crate::files::dir::Dir;
use crate::files::part::Part;
use crate::files::wire::Meta;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Buffers that are not behind each other; each takes 32 bytes of memory.
const MAX_RUNS: usize = 16 << 20;
/// For bringing a file into order.
const COPY_BYTES: usize = 1 << 20;
const MODE: u32 = 0o644;

/// The one copy.
pub struct Write {
    root: Arc<Path>,
    path: PathBuf,
    part: Option<(Arc<Dir>, Part)>,
    index: Index,
}

/// Where the buffers are.
#[derive(Debug, Default)]
struct Index {
    runs: Vec<Run>,
    bytes: u64,
}

/// Buffers that came one behind the other, with nothing that could belong between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first_tag: u64,
    last_tag: u64,
    start: u64,
    bytes: u64,
}

impl Write {
    pub fn new(parameters: &Value, place: &Place, root: Arc<Path>) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let file: String = parameters.need("file")?;
        parameters.end()?;
        if place.copies != 1 {
            return Err(format!("it has {} copies, and only one can write a file", place.copies).into());
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
        let dir = Arc::new(Dir::open(&self.root)?.open_dir(folder)?);
        let part = Part::create(dir.clone(), self.name())?;
        Ok((dir, part))
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Puts the file into order and gives it its name.
    fn finish(&mut self) -> io::Result<()> {
        let Some((dir, mut part)) = self.part.take() else { return Ok(()) };
        if !self.index.is_ordered() {
            let ordered = Part::create(dir, self.name())?;
            ordered.reserve(self.index.bytes)?;
            self.index.copy(part.file(), ordered.file())?;
            part = ordered;
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        part.commit(&Meta { mode: MODE, mtime_s: now.as_secs() as i64, mtime_ns: now.subsec_nanos() }, false)
    }
}

impl Filter for Write {
    fn init(&mut self, _: &Unit) -> Result<(), Failure> {
        self.index = Index::default();
        self.part = Some(self.create().map_err(|e| self.failed(&e))?);
        Ok(())
    }

    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        while let Some(received) = io.read()? {
            let Some((_, part)) = &self.part else { return Err("it has not opened its file".into()) };
            part.file().write_all_at(&received.body, self.index.bytes).map_err(|e| self.failed(&e))?;
            if !self.index.add(received.tag, received.body.len() as u64) {
                return Err(format!("more than {MAX_RUNS} buffers came out of order; make chunks larger").into());
            }
        }
        Ok(())
    }

    fn finalize(&mut self) -> Result<(), Failure> {
        self.finish().map_err(|e| self.failed(&e))
    }
}

impl Index {
    /// What was written behind everything before it. False: there is no room.
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

    /// Buffers of one tag stay in the order in which they came.
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
