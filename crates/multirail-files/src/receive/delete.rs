//! Deletes what the source does not have.

use super::incoming::Incoming;
use super::state::Keeping;
use crate::wire::Change;
use multirail_net::error::{Error, Result};
use multirail_tree::dir::{Dir, Kind};
use multirail_tree::names;
use multirail_tree::report::{Cause, Problem};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The most names of one directory. From a directory with more, nothing is deleted.
const MAX_NAMES: usize = 4 << 20;
/// How many entries are found before they are deleted. A directory is not read while it changes.
const AT_ONCE: usize = 4096;
/// The deepest level that is deleted.
const MAX_DEPTH: usize = 200;

impl Incoming<'_> {
    pub(super) fn begin_keeping(&mut self, path: &[u8]) -> Result<()> {
        if !self.order.terms.delete || !self.order.terms.recursive {
            return Err(Error::Protocol("names to keep, and nothing is to be deleted".to_owned()));
        }
        let (path, names) = (path.to_vec(), HashSet::new());
        self.keeping = Some(Keeping { path, names, key: RandomState::new(), is_too_long: false });
        Ok(())
    }

    pub(super) fn keep(&mut self, names: &[u8]) -> Result<()> {
        let Some(keeping) = &mut self.keeping else {
            return Err(Error::Protocol("names to keep of no directory".to_owned()));
        };
        for name in names.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            keeping.is_too_long |= keeping.names.len() >= MAX_NAMES;
            if !keeping.is_too_long {
                keeping.names.insert(keeping.key.hash_one(name));
            }
        }
        Ok(())
    }

    /// Deletes what is in the directory and not in the list.
    pub(super) async fn end_keeping(&mut self) -> Result<()> {
        let Some(keeping) = self.keeping.take() else {
            return Err(Error::Protocol("the end of no list".to_owned()));
        };
        if keeping.is_too_long {
            let problem = Problem::new(Cause::Write, "nothing was deleted from it: it has too many entries");
            return self.fail(&keeping.path, true, problem).await;
        }
        let dir = match self.target.dir_or_base(&keeping.path) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Ok(()),
            Err(problem) => return self.fail(&keeping.path, true, problem).await,
        };
        // What could not be deleted is found again.
        let mut failed = HashSet::new();
        loop {
            let doomed = match self.find_others(&dir, &keeping, &failed) {
                Ok(doomed) => doomed,
                Err(error) => return self.fail(&keeping.path, true, Problem::io(Cause::Write, &error)).await,
            };
            for name in &doomed {
                let path = [&keeping.path, &b"/"[..], name.as_bytes()].concat();
                if self.order.terms.dry_run {
                    self.would(Change::Delete, &path).await?;
                    failed.insert(name.clone());
                } else if let Err(error) = self.delete(&dir, name, &path, 0) {
                    self.fail(&path, true, Problem::io(Cause::Write, &error)).await?;
                    failed.insert(name.clone());
                }
            }
            if doomed.len() < AT_ONCE || failed.len() >= AT_ONCE {
                return Ok(());
            }
        }
    }

    fn find_others(&self, dir: &Dir, keeping: &Keeping, failed: &HashSet<OsString>) -> io::Result<Vec<OsString>> {
        let mut others = Vec::new();
        for name in dir.entries()? {
            let name = name?;
            let is_kept = keeping.names.contains(&keeping.key.hash_one(name.as_bytes()));
            if is_kept
                || failed.contains(&name)
                || names::is_unfinished(&name)
                || self.is_protected(dir, &name, keeping)?
            {
                continue;
            }
            others.push(name);
            if others.len() >= AT_ONCE {
                break;
            }
        }
        Ok(others)
    }

    fn is_protected(&self, dir: &Dir, name: &OsStr, keeping: &Keeping) -> io::Result<bool> {
        let Some(filter) = &self.order.filter else { return Ok(false) };
        let is_dir = dir.kind_of(name)? == Some(Kind::Directory);
        Ok(filter.excludes(&[&keeping.path, &b"/"[..], name.as_bytes()].concat(), is_dir))
    }

    /// Deletes `name`, and what is below it. What the rules exclude stays, with its directories.
    fn delete(&mut self, dir: &Dir, name: &OsStr, path: &[u8], depth: usize) -> io::Result<()> {
        if dir.kind_of(name)? != Some(Kind::Directory) {
            dir.remove_file(name)?;
            self.counts.deleted += 1;
            return Ok(());
        }
        if depth >= MAX_DEPTH {
            return Err(io::Error::other(format!("directories deeper than {MAX_DEPTH} are not deleted")));
        }
        let below = dir.child_dir(name)?;
        // Each round removes at least one entry, or is the last.
        loop {
            let names: Vec<OsString> = below.entries()?.take(AT_ONCE).collect::<io::Result<_>>()?;
            let before = self.counts.deleted;
            for child in &names {
                let path = [path, b"/", child.as_bytes()].concat();
                let is_dir = below.kind_of(child)? == Some(Kind::Directory);
                if !self.order.filter.as_ref().is_some_and(|filter| filter.excludes(&path, is_dir)) {
                    self.delete(&below, child, &path, depth + 1)?;
                }
            }
            if names.len() < AT_ONCE || self.counts.deleted == before {
                break;
            }
        }
        dir.remove_dir(name)?;
        self.counts.deleted += 1;
        Ok(())
    }
}
