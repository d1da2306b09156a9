//! Entries that were found, and how they are opened later.

use multirail_net::error::{Error, Result};
use multirail_tree::dir::Dir;
use multirail_tree::extra::Extra;
use multirail_tree::meta::Meta;
use multirail_tree::names;
use multirail_tree::origin::{Opened, Origin, Source};
use multirail_tree::report::{Cause, Problem};
use multirail_tree::stat::Stat;
use std::collections::HashMap;
use std::fs::File;
use std::io;

/// What an entry of the queue takes beside its path, in bytes.
pub(super) const ENTRY_BYTES: usize = 64;
/// What the paths of files with several links may take, in bytes.
const MAX_LINKS_BYTES: usize = 64 << 20;

/// An entry that was found and not yet dealt with.
#[derive(Debug)]
pub(super) enum Entry {
    /// A file that was announced, of the source with this index.
    File { source: usize, path: Vec<u8>, bytes: u64 },
    /// A symbolic link that was announced.
    Symlink,
    /// The end of a directory.
    DirectoryEnd { path: Vec<u8>, meta: Meta, extra: Option<Extra> },
    /// A link to a file that came before.
    HardLink { path: Vec<u8>, to: Vec<u8> },
}

/// Files with several links that were found, by device and inode.
#[derive(Debug, Default)]
pub(super) struct HardLinks {
    found: HashMap<(u64, u64), (Vec<u8>, u64)>,
    bytes: usize,
}

impl HardLinks {
    /// The path under which the file was found before. Otherwise it is noted under `path`, if there is
    /// room.
    pub(super) fn find(&mut self, stat: &Stat, path: &[u8]) -> Option<Vec<u8>> {
        let Some((first, left)) = self.found.get_mut(&stat.inode) else {
            let bytes = path.len() + ENTRY_BYTES;
            if self.bytes + bytes <= MAX_LINKS_BYTES {
                self.bytes += bytes;
                self.found.insert(stat.inode, (path.to_vec(), stat.links.saturating_sub(1)));
            }
            return None;
        };
        let first = first.clone();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.bytes -= first.len() + ENTRY_BYTES;
            self.found.remove(&stat.inode);
        }
        Some(first)
    }
}

/// Opens entries by their paths. It keeps the directory of the last one open.
#[derive(Debug, Default)]
pub(super) struct Opener {
    pub(super) last: Option<(usize, Vec<u8>, Dir)>,
}

impl Opener {
    /// Opens the file `path` of the source with this index.
    pub(super) fn open(
        &mut self,
        origin: &Origin,
        index: usize,
        source: &Source,
        path: &[u8],
    ) -> Result<io::Result<File>, Problem> {
        let wire = names::WirePath::parse(path)?;
        let (Some(parent), Some(name)) = (wire.below.parent(), wire.below.file_name()) else {
            return match origin.open(&source.path)? {
                Opened::File(file) => Ok(Ok(file)),
                Opened::Dir(_) | Opened::Special => Err(no_file()),
            };
        };
        let key = names::bytes(parent);
        if !matches!(&self.last, Some((known, last, _)) if *known == index && last == key) {
            let Opened::Dir(top) = origin.open(&source.path)? else { return Err(no_file()) };
            let dir = top.open_dir_unlinked(parent).map_err(|e| Problem::io(Cause::Read, &e))?;
            self.last = Some((index, key.to_vec(), dir));
        }
        Ok(match &self.last {
            Some((_, _, dir)) => dir.child_file(name),
            None => Err(io::ErrorKind::NotFound.into()),
        })
    }
}

fn no_file() -> Problem {
    Problem::new(Cause::Changed, "it is no longer a file")
}

/// A hash that shows whether owner and attributes are the same.
pub(crate) fn digest(extra: &Extra) -> Result<[u8; 16]> {
    let bytes =
        postcard::to_allocvec(extra).map_err(|e| Error::Protocol(format!("attributes cannot be encoded: {e}")))?;
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..16]);
    Ok(digest)
}
