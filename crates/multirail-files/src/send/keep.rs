//! The names of the source, so that the receiver deletes the others.

use super::outgoing::Outgoing;
use crate::wire::{BATCH_BYTES, Item};
use multirail_net::error::Result;
use multirail_net::sync::lock;
use multirail_tree::names;
use multirail_tree::origin::Opened;
use multirail_tree::report::{Cause, Problem};
use multirail_tree::walk::{Found, Walk};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The names of a list that are sent at once, in bytes.
const NAMES_BYTES: usize = BATCH_BYTES / 4;

impl Outgoing<'_> {
    /// Sends the names in each directory of the sources. It ends early, and the receiver deletes
    /// nothing more, as soon as something cannot be read.
    pub(super) async fn keep_all(&mut self) -> Result<()> {
        if !lock(self.tally).report.is_success() {
            let path = Path::new(&self.order.sources[0].top);
            let problem = Problem::new(Cause::Read, "nothing was deleted, because not everything could be copied");
            return self.fail(names::bytes(path), true, problem).await;
        }
        for source in &self.order.sources {
            let top = names::bytes(Path::new(&source.top));
            let Ok(Opened::Dir(dir)) = self.order.origin.open(&source.path) else { continue };
            let mut walk = Walk::new(dir, top).filtered(self.order.filter.clone());
            while let Some(found) = walk.find_next() {
                match found {
                    Found::Directory => {
                        if let Err(error) = self.keep(&walk).await? {
                            return self.fail(walk.path(), true, Problem::io(Cause::Read, &error)).await;
                        }
                    }
                    // Deleting has changed the time of the directory.
                    Found::DirectoryEnd(meta) => {
                        self.push(&Item::DirectoryEnd { path: walk.path(), meta }).await?;
                    }
                    Found::Failed(problem) => return self.fail(walk.path(), true, problem).await,
                    Found::File(_) | Found::Symlink(_) | Found::Other(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Sends the names in the directory that was found last.
    async fn keep(&mut self, walk: &Walk) -> Result<std::io::Result<()>> {
        let entries = match walk.names() {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(error)),
        };
        self.push(&Item::Keep { path: walk.path() }).await?;
        let mut names = Vec::new();
        for name in entries {
            match name {
                Ok(name) => {
                    names.push(b'/');
                    names.extend_from_slice(name.as_bytes());
                }
                // Without the end of its list, nothing is deleted from the directory.
                Err(error) => return Ok(Err(error)),
            }
            if names.len() >= NAMES_BYTES {
                self.push(&Item::KeepNames(&names)).await?;
                names.clear();
            }
        }
        self.push(&Item::KeepNames(&names)).await?;
        self.push(&Item::KeepEnd).await?;
        Ok(Ok(()))
    }
}
