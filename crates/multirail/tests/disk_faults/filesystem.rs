//! The disks as a FUSE file system: disk N is the folder `N` of the mount. A disk with a new number is what
//! is mounted after a power cut, so that nothing that the kernel or a program has of the old one leads to it.

use super::disk::{Disk, ROOT, State};
use super::inode::{Inode, Kind};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use multirail_testing::{Requirement, skip};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// The number of an inode has that of its disk above these bits.
const DISK_SHIFT: u32 = 32;
/// The kernel keeps nothing that it is told.
const TTL: Duration = Duration::ZERO;
const BLOCK_BYTES: u32 = 4096;
const FREE_BLOCKS: u64 = 1 << 24;

type Disks = Arc<Mutex<HashMap<u64, Arc<Disk>>>>;

/// Mounted disks. Dropping this unmounts them and removes the folder. The mount is in a namespace of the
/// thread that made it, so that it ends with the process at the latest.
pub struct Mounted {
    folder: PathBuf,
    disks: Disks,
    next: AtomicU64,
    _session: BackgroundSession,
}

impl Mounted {
    /// Mounts at a new folder. `None` if this host does not allow it; the test is skipped then.
    pub fn new() -> Option<Self> {
        Self::mount().map_err(|why| skip(Requirement::Fuse, why)).ok()
    }

    fn mount() -> Result<Self, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("multirail-disk-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).map_err(|e| format!("no mount namespace: {e}"))?;
        let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).map_err(|e| format!("no private mounts: {e}"))?;
        std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let disks = Disks::default();
        let filesystem = Disked { disks: disks.clone(), listed: Mutex::default(), handles: AtomicU64::new(1) };
        let session = fuser::spawn_mount(filesystem, &folder, &Config::default());
        match session {
            Ok(session) => Ok(Self { folder, disks, next: AtomicU64::new(1), _session: session }),
            Err(error) => {
                let _ = std::fs::remove_dir(&folder);
                Err(format!("cannot mount a FUSE file system: {error}"))
            }
        }
    }

    /// Puts `disk` into the mount, and returns its folder.
    pub fn insert(&self, disk: &Arc<Disk>) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.disks).insert(number, disk.clone());
        self.folder.join(number.to_string())
    }

    /// Takes all disks out of the mount.
    pub fn clear(&self) {
        lock(&self.disks).clear();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A server that ends late may have files open. Detaching does not wait for them. Without the force,
        // which fails all further requests, the process would close them at its end and wait for an answer
        // of its own.
        let _ = umount2(&self.folder, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[derive(Debug)]
struct Disked {
    disks: Disks,
    /// The names of open directories, as they were when they were opened.
    listed: Mutex<HashMap<u64, Vec<Listed>>>,
    handles: AtomicU64,
}

/// The number, type and name of an entry of a directory.
type Listed = (u64, FileType, OsString);

/// An inode of a disk.
struct Place {
    number: u64,
    disk: Arc<Disk>,
    inode: u64,
}

impl Place {
    fn attributes(&self, state: &State, inode: u64) -> Result<FileAttr, i32> {
        let found = state.inodes.get(&inode).ok_or(libc::ENOENT)?;
        Ok(attributes(self.number << DISK_SHIFT | inode, found, state.links(inode)))
    }
}

impl Disked {
    fn place(&self, inode: INodeNo) -> Result<Place, i32> {
        let number = inode.0 >> DISK_SHIFT;
        let disk = lock(&self.disks).get(&number).cloned().ok_or(libc::EIO)?;
        Ok(Place { number, disk, inode: inode.0 & ((1 << DISK_SHIFT) - 1) })
    }

    /// Reads from the disk.
    fn read<T>(&self, inode: INodeNo, read: impl FnOnce(&Place, &mut State) -> Result<T, i32>) -> Result<T, Errno> {
        let read = || {
            let place = self.place(inode)?;
            let mut state = place.disk.lock();
            state.reads()?;
            read(&place, &mut state)
        };
        read().map_err(Errno::from_i32)
    }

    /// Changes the disk.
    fn change<T>(
        &self,
        inode: INodeNo,
        what: impl FnOnce(&State, &Place) -> String,
        change: impl FnOnce(&Place, &mut State) -> Result<T, i32>,
    ) -> Result<T, Errno> {
        self.read(inode, |place, state| {
            let fails = state.begin(|state| what(state, place))?;
            let changed = change(place, state);
            fails.map_or(changed, Err)
        })
    }

    /// Makes an entry of a directory.
    fn make(&self, parent: INodeNo, name: &OsStr, new: Inode) -> Result<FileAttr, Errno> {
        let what = |state: &State, place: &Place| format!("make {:?} in {}", name, state.name_of(place.inode));
        self.change(parent, what, |place, state| {
            if state.find(place.inode, name).is_some() {
                return Err(libc::EEXIST);
            }
            let inode = state.add(place.inode, name, new);
            place.attributes(state, inode)
        })
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, is_dir: bool) -> Result<(), Errno> {
        let what = |state: &State, place: &Place| format!("remove {:?} in {}", name, state.name_of(place.inode));
        self.change(parent, what, |place, state| {
            let inode = state.find(place.inode, name).ok_or(libc::ENOENT)?;
            let found = state.inode(inode)?;
            match (is_dir, found.kind == Kind::Directory) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                _ if !found.names.is_empty() => return Err(libc::ENOTEMPTY),
                _ => {}
            }
            state.change(Some((place.inode, name)), None, inode);
            Ok(())
        })
    }

    fn sync(&self, inode: INodeNo) -> Result<(), Errno> {
        let what = |state: &State, place: &Place| format!("sync {}", state.name_of(place.inode));
        let synced = self.change(inode, what, |place, state| state.sync(place.inode));
        if synced.is_err() {
            let _ = self.read(inode, |place, state| state.inode(place.inode).map(Inode::fail_sync));
        }
        synced
    }
}

fn attributes(number: u64, inode: &Inode, links: u32) -> FileAttr {
    let bytes = inode.content.len() as u64;
    FileAttr {
        ino: INodeNo(number),
        size: bytes,
        blocks: bytes.div_ceil(512),
        atime: inode.now.modified,
        mtime: inode.now.modified,
        ctime: inode.now.changed,
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(inode.kind),
        perm: (inode.now.mode & 0o7777) as u16,
        nlink: links,
        uid: inode.now.user,
        gid: inode.now.group,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
    }
}

/// The folder that has the disks.
fn top() -> FileAttr {
    attributes(ROOT, &Inode::new(Kind::Directory, 0o755), 1)
}

macro_rules! reply {
    ($reply:expr, $result:expr, $method:ident) => {
        match $result {
            Ok(()) => $reply.$method(),
            Err(error) => $reply.error(error),
        }
    };
    ($reply:expr, $result:expr, |$value:ident| $call:expr) => {
        match $result {
            Ok($value) => $call,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Disked {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = if parent == INodeNo::ROOT {
            let number: Option<u64> = name.to_str().and_then(|name| name.parse().ok());
            let inode = number.map_or(0, |number| number << DISK_SHIFT | ROOT);
            self.read(INodeNo(inode), |place, state| place.attributes(state, ROOT)).map_err(|_| Errno::ENOENT)
        } else {
            self.read(parent, |place, state| {
                let inode = state.find(place.inode, name).ok_or(libc::ENOENT)?;
                place.attributes(state, inode)
            })
        };
        reply!(reply, found, |found| reply.entry(&TTL, &found, Generation(0)));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = match inode {
            INodeNo::ROOT => Ok(top()),
            _ => self.read(inode, |place, state| place.attributes(state, place.inode)),
        };
        reply!(reply, found, |found| reply.attr(&TTL, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let what = |state: &State, place: &Place| format!("set properties of {}", state.name_of(place.inode));
        let set = self.change(inode, what, |place, state| {
            if let Some(bytes) = size {
                state.inode(place.inode)?.resize(bytes as usize);
            }
            state.set(place.inode, |meta| {
                meta.mode = mode.unwrap_or(meta.mode);
                meta.user = user.unwrap_or(meta.user);
                meta.group = group.unwrap_or(meta.group);
                meta.modified = match modified {
                    Some(TimeOrNow::SpecificTime(time)) => time,
                    Some(TimeOrNow::Now) => SystemTime::now(),
                    None => meta.modified,
                };
            })?;
            place.attributes(state, place.inode)
        });
        reply!(reply, set, |found| reply.attr(&TTL, &found));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.read(inode, |place, state| Ok(state.inode(place.inode)?.content.clone()));
        reply!(reply, target, |target| reply.data(&target));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let made = self.make(parent, name, Inode::new(Kind::Directory, mode & 0o7777 & !umask));
        reply!(reply, made, |made| reply.entry(&TTL, &made, Generation(0)));
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, _: i32, reply: ReplyCreate) {
        let made = self.make(parent, name, Inode::new(Kind::File, mode & 0o7777 & !umask));
        reply!(reply, made, |made| reply.created(&TTL, &made, Generation(0), FileHandle(0), FopenFlags::empty()));
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let mut link = Inode::new(Kind::Symlink, 0o777);
        link.content = target.as_os_str().as_bytes().to_vec();
        let made = self.make(parent, name, link);
        reply!(reply, made, |made| reply.entry(&TTL, &made, Generation(0)));
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let what = |state: &State, place: &Place| format!("link {:?} in {}", name, state.name_of(place.inode));
        let linked = self.change(parent, what, |place, state| {
            if state.find(place.inode, name).is_some() {
                return Err(libc::EEXIST);
            }
            let inode = inode.0 & ((1 << DISK_SHIFT) - 1);
            state.change(None, Some((place.inode, name)), inode);
            place.attributes(state, inode)
        });
        reply!(reply, linked, |linked| reply.entry(&TTL, &linked, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply!(reply, self.remove(parent, name, false), ok);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply!(reply, self.remove(parent, name, true), ok);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let what = |state: &State, place: &Place| {
            format!("rename {:?} in {} to {:?}", name, state.name_of(place.inode), new_name)
        };
        let renamed = self.change(parent, what, |place, state| {
            if !flags.is_empty() {
                return Err(libc::EINVAL);
            }
            let inode = state.find(place.inode, name).ok_or(libc::ENOENT)?;
            let to = new_parent.0 & ((1 << DISK_SHIFT) - 1);
            if state.find(to, new_name) != Some(inode) {
                state.change(Some((place.inode, name)), Some((to, new_name)), inode);
            }
            Ok(())
        });
        reply!(reply, renamed, ok);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = Disked::read(self, inode, |place, state| {
            let content = &state.inode(place.inode)?.content;
            let start = (offset as usize).min(content.len());
            Ok(content[start..content.len().min(start + size as usize)].to_vec())
        });
        reply!(reply, bytes, |bytes| reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let what = |state: &State, place: &Place| {
            format!("write {} bytes at {offset} of {}", bytes.len(), state.name_of(place.inode))
        };
        let written = self.change(inode, what, |place, state| {
            state.inode(place.inode)?.write(offset as usize, bytes);
            Ok(bytes.len() as u32)
        });
        // The beginning of what was to be written may be there.
        if written.is_err() {
            let half = &bytes[..bytes.len() / 2];
            let _ = Disked::read(self, inode, |place, state| {
                state.inode(place.inode).map(|inode| inode.write(offset as usize, half))
            });
        }
        reply!(reply, written, |written| reply.written(written));
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply!(reply, self.sync(inode), ok);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply!(reply, self.sync(inode), ok);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listed = match inode {
            INodeNo::ROOT => Ok(Vec::new()),
            _ => self.read(inode, |place, state| {
                let names = state.inode(place.inode)?.names.clone();
                let entry = |(name, inode)| {
                    let kind = state.inodes.get(&inode).map_or(FileType::RegularFile, |inode| file_type(inode.kind));
                    (place.number << DISK_SHIFT | inode, kind, name)
                };
                Ok(names.into_iter().map(entry).collect())
            }),
        };
        reply!(reply, listed, |listed| {
            let handle = self.handles.fetch_add(1, Ordering::Relaxed);
            lock(&self.listed).insert(handle, listed);
            reply.opened(FileHandle(handle), FopenFlags::empty());
        });
    }

    fn readdir(&self, _: &Request, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT
            && let Err(error) = self.read(inode, |_, _| Ok(()))
        {
            return reply.error(error);
        }
        let listed = lock(&self.listed).get(&handle.0).cloned().unwrap_or_default();
        for (at, (inode, kind, name)) in listed.into_iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(inode), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.listed).remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(FREE_BLOCKS, FREE_BLOCKS, FREE_BLOCKS, FREE_BLOCKS, FREE_BLOCKS, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
