//! The journal of an unfinished file: which of its blocks are on the disk, and their hashes. A copy
//! that was killed continues from it.
//!
//! The journal lies behind the content in the same file, so both appear and disappear together. It
//! begins at the next multiple of 4 KiB with 32 bytes for each block. Its last 128 bytes are a header:
//! a mark, the length of the content, the number of blocks, and a fingerprint of the source as it was.
//!
//! A block's hash is written after the block. After a crash of the host, the disk may have the hash
//! and not the block, so a copy that continues hashes the block again and compares.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The hash of a block. Zeros stand for a block that has not arrived.
pub type BlockHash = [u8; 32];

const MARK: &[u8; 16] = b"multirail-part\n\x01";
const HEADER_BYTES: u64 = 128;
const HASH_BYTES: u64 = size_of::<BlockHash>() as u64;
const PAGE_BYTES: u64 = 4096;

/// What a journal belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The length of the content, in bytes.
    pub total_bytes: u64,
    /// The number of its blocks.
    pub blocks: u64,
    /// A hash of everything that shows whether the source has changed.
    pub fingerprint: [u8; 32],
}

/// A journal in a file.
#[derive(Debug)]
pub struct Journal {
    file: File,
    start: u64,
    blocks: u64,
}

impl Identity {
    /// Where the journal starts, and where it ends.
    fn place(&self) -> Option<(u64, u64)> {
        let start = self.total_bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let end = start.checked_add(self.blocks.checked_mul(HASH_BYTES)?)?.checked_add(HEADER_BYTES)?;
        i64::try_from(end).ok().map(|_| (start, end))
    }

    fn header(&self) -> [u8; HEADER_BYTES as usize] {
        let mut header = [0; HEADER_BYTES as usize];
        header[..16].copy_from_slice(MARK);
        header[16..24].copy_from_slice(&self.total_bytes.to_le_bytes());
        header[24..32].copy_from_slice(&self.blocks.to_le_bytes());
        header[32..64].copy_from_slice(&self.fingerprint);
        header
    }
}

impl Journal {
    /// Begins a journal without blocks in `file`. The file gets longer, and takes no more room on the
    /// disk than the header.
    ///
    /// # Errors
    ///
    /// If the header cannot be written, or the file would be too long for a file system.
    pub fn begin(file: &File, identity: &Identity) -> io::Result<Journal> {
        let (start, end) = identity.place().ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        let file = file.try_clone()?;
        file.set_len(0)?;
        file.set_len(end)?;
        file.write_all_at(&identity.header(), end - HEADER_BYTES)?;
        Ok(Journal { file, start, blocks: identity.blocks })
    }

    /// The journal in `file`, if it has the one of `identity`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn open(file: &File, identity: &Identity) -> io::Result<Option<Journal>> {
        let Some((start, end)) = identity.place() else { return Ok(None) };
        if file.metadata()?.len() != end || read_header(file, end)? != identity.header() {
            return Ok(None);
        }
        Ok(Some(Journal { file: file.try_clone()?, start, blocks: identity.blocks }))
    }

    /// Whether `file` ends in a journal.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn is_in(file: &File) -> io::Result<bool> {
        let length = file.metadata()?.len();
        Ok(length >= HEADER_BYTES && read_header(file, length)?.starts_with(MARK))
    }

    /// Notes that `block` is in the file.
    ///
    /// # Errors
    ///
    /// If the journal cannot be written.
    pub fn confirm(&self, block: u64, hash: &BlockHash) -> io::Result<()> {
        self.file.write_all_at(hash, self.start + block.min(self.blocks) * HASH_BYTES)
    }

    /// Reads the hashes of `count` blocks, beginning with `first`. Zeros stand for a block that is not
    /// in the file.
    ///
    /// # Errors
    ///
    /// If the journal cannot be read.
    pub fn read(&self, first: u64, count: usize) -> io::Result<Vec<BlockHash>> {
        let mut hashes = vec![[0; HASH_BYTES as usize]; count];
        self.file.read_exact_at(hashes.as_flattened_mut(), self.start + first * HASH_BYTES)?;
        Ok(hashes)
    }
}

fn read_header(file: &File, end: u64) -> io::Result<[u8; HEADER_BYTES as usize]> {
    let mut header = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut header, end - HEADER_BYTES)?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Temp;
    use std::ffi::OsStr;
    use std::os::unix::fs::MetadataExt;

    fn identity(total_bytes: u64) -> Identity {
        Identity { total_bytes, blocks: total_bytes.div_ceil(1 << 18), fingerprint: [7; 32] }
    }

    #[test]
    fn what_was_confirmed_is_read_again() {
        let temp = Temp::new();
        let file = temp.dir().create(OsStr::new("part")).unwrap();
        let identity = identity(3_000_001);
        let journal = Journal::begin(&file, &identity).unwrap();
        journal.confirm(3, &[3; 32]).unwrap();
        journal.confirm(11, &[11; 32]).unwrap();
        assert!(Journal::is_in(&file).unwrap());
        let again = Journal::open(&file, &identity).unwrap().unwrap();
        let hashes = again.read(0, identity.blocks as usize).unwrap();
        for (block, hash) in hashes.iter().enumerate() {
            let expected = if [3, 11].contains(&block) { [block as u8; 32] } else { [0; 32] };
            assert_eq!(*hash, expected, "{block}");
        }
    }

    #[test]
    fn a_changed_source_has_no_journal() {
        let temp = Temp::new();
        let file = temp.dir().create(OsStr::new("part")).unwrap();
        Journal::begin(&file, &identity(1 << 20)).unwrap();
        for other in [
            Identity { fingerprint: [8; 32], ..identity(1 << 20) },
            identity((1 << 20) - 1),
            identity(0),
            Identity { blocks: 1, ..identity(1 << 20) },
        ] {
            assert!(Journal::open(&file, &other).unwrap().is_none(), "{other:?}");
        }
        file.set_len(100).unwrap();
        assert!(Journal::open(&file, &identity(1 << 20)).unwrap().is_none() && !Journal::is_in(&file).unwrap());
    }

    #[test]
    fn an_announced_length_takes_no_room() {
        let temp = Temp::new();
        let file = temp.dir().create(OsStr::new("part")).unwrap();
        Journal::begin(&file, &identity(1 << 40)).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 <= 64 << 10);
        for total_bytes in [u64::MAX, u64::MAX / 2, (1 << 63) - 4096] {
            assert!(Journal::begin(&file, &identity(total_bytes)).is_err(), "{total_bytes}");
        }
    }
}
