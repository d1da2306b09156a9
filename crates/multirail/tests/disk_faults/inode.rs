//! Files, directories and symbolic links of a [`super::disk::Disk`].

use multirail_proto::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::SystemTime;

/// What is written and lost as a whole.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink,
}

#[derive(Debug, Clone, Copy)]
pub struct Meta {
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub modified: SystemTime,
    pub changed: SystemTime,
}

/// The names are those of a directory, the content that of a file, or the target of a symbolic link.
#[derive(Debug, Clone)]
pub struct Inode {
    pub kind: Kind,
    pub now: Meta,
    pub content: Vec<u8>,
    pub names: BTreeMap<OsString, u64>,
    safe: Meta,
    safe_content: Vec<u8>,
    pub safe_names: BTreeMap<OsString, u64>,
    /// The sectors that were written to since they were safe.
    dirty: BTreeSet<usize>,
}

impl Inode {
    pub fn new(kind: Kind, mode: u32) -> Self {
        let now = SystemTime::now();
        let meta = Meta { mode, user: 0, group: 0, modified: now, changed: now };
        // What has a name and was never synced may have any mode.
        let safe = Meta { mode: if kind == Kind::Directory { 0o700 } else { 0o600 }, ..meta };
        Self {
            kind,
            now: meta,
            content: Vec::new(),
            names: BTreeMap::new(),
            safe,
            safe_content: Vec::new(),
            safe_names: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    pub fn touch(&mut self) {
        self.now.modified = SystemTime::now();
        self.now.changed = self.now.modified;
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        self.touch();
    }

    pub fn resize(&mut self, bytes: usize) {
        self.content.resize(bytes, 0);
        self.dirty.insert(bytes / SECTOR_BYTES);
        self.touch();
    }

    /// `fsync`.
    pub fn sync(&mut self) {
        self.safe = self.now;
        self.safe_content.resize(self.content.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            copy_sector(&mut self.safe_content, &self.content, sector);
        }
    }

    /// `fsync` that failed: as on Linux, what was to be written counts as written, and is lost.
    pub fn fail_sync(&mut self) {
        self.dirty.clear();
    }

    /// The inode after a power cut. A `share` of what was not safe survives. It has the names that are
    /// safe.
    pub fn survivor(&self, rng: &mut Rng, share: f64) -> Inode {
        let mut survives = || rng.unit() < share;
        let mut content = self.safe_content.clone();
        if survives() {
            content.resize(self.content.len(), 0);
        }
        for sector in &self.dirty {
            if survives() {
                copy_sector(&mut content, &self.content, *sector);
            }
        }
        let Meta { mode, user, group, modified, changed } = if survives() { self.now } else { self.safe };
        let modified = if survives() { self.now.modified } else { modified };
        let now = Meta { mode, user, group, modified, changed };
        // The target of a symbolic link is written with its inode.
        let content = if self.kind == Kind::Symlink { self.content.clone() } else { content };
        Inode {
            kind: self.kind,
            now,
            safe: now,
            safe_content: content.clone(),
            content,
            names: self.safe_names.clone(),
            safe_names: self.safe_names.clone(),
            dirty: BTreeSet::new(),
        }
    }
}

/// Copies a sector as far as both have it.
fn copy_sector(to: &mut [u8], from: &[u8], sector: usize) {
    let (start, end) = (sector * SECTOR_BYTES, ((sector + 1) * SECTOR_BYTES).min(to.len()).min(from.len()));
    if start < end {
        to[start..end].copy_from_slice(&from[start..end]);
    }
}
