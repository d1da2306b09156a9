//! `read`: writes the chunks of a file below the served folder.

use super::to_all::write_to_all;
use crate::filters::Parameters;
use crate::runtime::{CopyInfo, Failure, Filter, Io, UnitOfWork};
use multirail_tree::dir::Kind;
use multirail_tree::names;
use multirail_tree::root::Root;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Reads a file. With n copies, each copy reads every n-th chunk.
pub(super) struct Read {
    root: Arc<Root>,
    path: PathBuf,
    chunk_bytes: u64,
    open: Option<(File, u64)>,
}

impl Read {
    pub(super) fn new(parameters: &Value, info: &CopyInfo, root: Arc<Root>) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let file: String = parameters.need("file")?;
        parameters.end()?;
        if info.chunk_bytes > info.limit_bytes {
            let (chunk, limit) = (info.chunk_bytes, info.limit_bytes);
            return Err(format!("chunks of {chunk} bytes are longer than the group's limit of {limit}").into());
        }
        Ok(Self { root, path: path(&file)?, chunk_bytes: info.chunk_bytes, open: None })
    }
}

/// Checks a path: it must be below the served folder, and not empty.
pub(super) fn path(text: &str) -> Result<PathBuf, Failure> {
    match names::check_path(text.as_bytes()) {
        Ok(path) if path.as_os_str().is_empty() => Err("its parameter \"file\" is empty".into()),
        Ok(path) => Ok(path),
        Err(problem) => Err(format!("its parameter \"file\", {text:?}, is refused: {}", problem.reason).into()),
    }
}

impl Filter for Read {
    fn init(&mut self, _: &UnitOfWork) -> Result<(), Failure> {
        let failed = |e: std::io::Error| format!("cannot read {}: {e}", self.path.display());
        let root = self.root.open().map_err(failed)?;
        match root.kind(&self.path).map_err(failed)? {
            Kind::File => {}
            other => return Err(format!("cannot read {}: it is {}", self.path.display(), other.name()).into()),
        }
        let file = root.open_file(&self.path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        self.open = Some((file, bytes));
        Ok(())
    }

    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let Some((file, bytes)) = &self.open else { return Err("it has no open file".into()) };
        let (copy, copies) = (io.info().copy, io.info().copies);
        for tag in (0..bytes.div_ceil(self.chunk_bytes)).skip(copy).step_by(copies) {
            let start = tag * self.chunk_bytes;
            let length = self.chunk_bytes.min(bytes - start) as usize;
            let mut body = io.buffer(length);
            body.resize(length, 0);
            file.read_exact_at(&mut body, start)
                .map_err(|e| format!("cannot read {} at byte {start}: {e}", self.path.display()))?;
            write_to_all(io, tag, body)?;
        }
        Ok(())
    }

    fn finalize(&mut self) -> Result<(), Failure> {
        self.open = None;
        Ok(())
    }
}
