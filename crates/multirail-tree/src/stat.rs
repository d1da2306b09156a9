//! What a file system knows of a file beside its name and content.

use crate::meta::Meta;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a socket or a pipe.
    Special,
}

impl Kind {
    pub(crate) fn of_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Self::File,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            _ => Self::Special,
        }
    }

    /// The type in words, with an article: `a file`.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symlink",
            Self::Special => "a special file",
        }
    }
}

/// The properties of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its type.
    pub kind: Kind,
    /// Its permission bits and its modification time.
    pub meta: Meta,
    /// The length of a file, in bytes.
    pub bytes: u64,
    /// The time of the last change of content or properties, which no program can set: seconds and
    /// nanoseconds.
    pub changed: (i64, u32),
    /// The user and the group.
    pub owner: (u32, u32),
    /// Device and inode, which are the same for hard links of one file.
    pub inode: (u64, u64),
    /// The number of hard links.
    pub links: u64,
    /// The room that it takes on the disk, in bytes.
    pub disk_bytes: u64,
}

impl Stat {
    #[allow(clippy::useless_conversion, reason = "the number of links has 32 bits on aarch64")]
    pub(crate) fn of(stat: &libc::stat) -> Self {
        Self {
            kind: Kind::of_mode(stat.st_mode),
            meta: Meta {
                mode: stat.st_mode & 0o777,
                mtime_s: stat.st_mtime,
                mtime_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            changed: (stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or(0)),
            owner: (stat.st_uid, stat.st_gid),
            inode: (stat.st_dev, stat.st_ino),
            links: u64::from(stat.st_nlink),
            disk_bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
        }
    }
}

impl From<&Metadata> for Stat {
    fn from(stat: &Metadata) -> Self {
        Self {
            kind: Kind::of_mode(stat.mode()),
            meta: Meta {
                mode: stat.mode() & 0o777,
                mtime_s: stat.mtime(),
                mtime_ns: u32::try_from(stat.mtime_nsec()).unwrap_or(0),
            },
            bytes: stat.size(),
            changed: (stat.ctime(), u32::try_from(stat.ctime_nsec()).unwrap_or(0)),
            owner: (stat.uid(), stat.gid()),
            inode: (stat.dev(), stat.ino()),
            links: stat.nlink(),
            disk_bytes: stat.blocks().saturating_mul(512),
        }
    }
}
