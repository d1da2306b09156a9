//! Directories as descriptors. The kernel resolves every path below a directory and refuses one
//! that leads out of it (`openat2`, Linux 5.6).

pub use crate::stat::Kind;
use crate::stat::Stat;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr::NonNull;

/// How often a path is resolved again when a concurrent rename disturbs the kernel.
const RESOLVE_TRIES: u32 = 16;

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory by a path that this host's user gave. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// If the path is no directory, or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let path = c_string(path.as_os_str())?;
        open_at(libc::AT_FDCWD, &path, libc::O_RDONLY | libc::O_DIRECTORY, 0).map(Dir)
    }

    /// Opens the directory at `path` below this one. An empty path means this directory.
    ///
    /// # Errors
    ///
    /// If the path leads out of this directory or through a symbolic link, or if it is no directory
    /// that can be opened.
    pub fn open_dir(&self, path: &Path) -> io::Result<Dir> {
        self.beneath(path, libc::O_RDONLY | libc::O_DIRECTORY).map(Dir)
    }

    /// Opens the file at `path` below this one for reading. Opening a pipe does not block.
    ///
    /// # Errors
    ///
    /// If the path leads out of this directory or through a symbolic link, or if it is no file that
    /// can be opened.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        self.beneath(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY).map(File::from)
    }

    /// The type of what is at `path` below this one. Symbolic links that stay below are followed.
    ///
    /// # Errors
    ///
    /// If there is nothing of that path, or if the path leads out of this directory.
    pub fn kind(&self, path: &Path) -> io::Result<Kind> {
        self.stat(path).map(|stat| stat.kind)
    }

    /// What the file system knows of what is at `path` below this one. Symbolic links that stay below are followed.
    ///
    /// # Errors
    ///
    /// Those of [`Dir::kind`].
    pub fn stat(&self, path: &Path) -> io::Result<Stat> {
        stat(&self.beneath(path, libc::O_PATH)?).map(|found| Stat::of(&found))
    }

    /// As [`Dir::open_dir`]. A symbolic link anywhere on the path is an error.
    pub fn open_dir_unlinked(&self, path: &Path) -> io::Result<Dir> {
        self.resolve(path, libc::O_RDONLY | libc::O_DIRECTORY, libc::RESOLVE_NO_SYMLINKS).map(Dir)
    }

    fn beneath(&self, path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
        self.resolve(path, flags, 0)
    }

    fn resolve(&self, path: &Path, flags: libc::c_int, more: u64) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { OsStr::new(".") } else { path.as_os_str() };
        let path = c_string(path)?;
        // SAFETY: all-zero bytes are a valid open_how.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (flags | libc::O_CLOEXEC) as u64;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | more;
        for _ in 0..RESOLVE_TRIES {
            let (fd, how, length) = (self.0.as_raw_fd(), &raw const how, size_of::<libc::open_how>());
            // SAFETY: the path ends in NUL, and `how` is valid for `length` bytes.
            let opened = unsafe { libc::syscall(libc::SYS_openat2, fd, path.as_ptr(), how, length) };
            if opened >= 0 {
                // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
                return Ok(unsafe { OwnedFd::from_raw_fd(opened as RawFd) });
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => {}
                Some(libc::ENOSYS) => return Err(io::Error::other("this needs Linux 5.6 or newer (openat2)")),
                _ => return Err(error),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The type of `name` in this directory, without following a symbolic link; `None` if it does
    /// not exist.
    ///
    /// # Errors
    ///
    /// If the name cannot be looked up. That nothing has the name is no error.
    pub fn kind_of(&self, name: &OsStr) -> io::Result<Option<Kind>> {
        Ok(self.stat_of(name)?.map(|stat| stat.kind))
    }

    /// What the file system knows of `name` in this directory, without following a symbolic link;
    /// `None` if it does not exist.
    pub fn stat_of(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        let name = c_string(name)?;
        // SAFETY: all-zero bytes are a valid stat; the name ends in NUL.
        let (ok, stat) = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            (libc::fstatat(self.0.as_raw_fd(), name.as_ptr(), &mut stat, flags), stat)
        };
        match check(ok) {
            Ok(()) => Ok(Some(Stat::of(&stat))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file `name` in this directory for reading. A symbolic link is an error.
    ///
    /// # Errors
    ///
    /// If there is no file of that name, if it is a symbolic link, or if it cannot be opened.
    pub fn child_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0).map(File::from)
    }

    /// Opens the file `name` in this directory for reading and writing. A symbolic link is an
    /// error.
    ///
    /// # Errors
    ///
    /// Those of [`Dir::child_file`].
    pub fn child_file_writable(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0).map(File::from)
    }

    /// Opens the directory `name` in this one. A symbolic link is an error.
    ///
    /// # Errors
    ///
    /// If there is no directory of that name, if it is a symbolic link, or if it cannot be opened.
    pub fn child_dir(&self, name: &OsStr) -> io::Result<Dir> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_DIRECTORY;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0).map(Dir)
    }

    /// Creates the file `name` with mode 0600. An existing file is an error.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if anything has the name, and others if the file cannot be
    /// created.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0o600).map(File::from)
    }

    /// Makes the directory `name` with mode 0700.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if anything has the name, and others if the directory
    /// cannot be made.
    pub fn make_dir(&self, name: &OsStr) -> io::Result<()> {
        self.make_dir_with(name, 0o700)
    }

    /// Makes the directory `name` as `mkdir` does: the process's umask gives its mode.
    ///
    /// # Errors
    ///
    /// Those of [`Dir::make_dir`].
    pub fn make_own_dir(&self, name: &OsStr) -> io::Result<()> {
        self.make_dir_with(name, 0o777)
    }

    fn make_dir_with(&self, name: &OsStr, mode: libc::mode_t) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), mode) })
    }

    /// Renames `from` to `to` in this directory and replaces what had that name.
    ///
    /// # Errors
    ///
    /// If nothing has the name `from`, or if the file cannot be moved.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to, fd) = (c_string(from)?, c_string(to)?, self.0.as_raw_fd());
        // SAFETY: both names end in NUL.
        check(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) })
    }

    /// Moves `from` to `to` in the directory `other` and replaces what had that name.
    ///
    /// # Errors
    ///
    /// If nothing has the name `from`, or if the file cannot be moved, for example to another file
    /// system.
    pub fn rename_into(&self, from: &OsStr, other: &Dir, to: &OsStr) -> io::Result<()> {
        let (from, to) = (c_string(from)?, c_string(to)?);
        // SAFETY: both names end in NUL.
        check(unsafe { libc::renameat(self.0.as_raw_fd(), from.as_ptr(), other.0.as_raw_fd(), to.as_ptr()) })
    }

    /// Reads the symbolic link `name`.
    pub fn read_link(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        let name = c_string(name)?;
        let mut target = vec![0; libc::PATH_MAX as usize];
        // SAFETY: the name ends in NUL, and the buffer is writable for its length.
        let length =
            unsafe { libc::readlinkat(self.0.as_raw_fd(), name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        target.truncate(length);
        Ok(target)
    }

    /// Makes the symbolic link `name` to `target`.
    pub fn make_symlink(&self, target: &[u8], name: &OsStr) -> io::Result<()> {
        let (target, name) = (c_string(OsStr::from_bytes(target))?, c_string(name)?);
        // SAFETY: both texts end in NUL.
        check(unsafe { libc::symlinkat(target.as_ptr(), self.0.as_raw_fd(), name.as_ptr()) })
    }

    /// Makes `to` in the directory `other` a hard link of the file `name`. A symbolic link is not
    /// followed.
    pub fn hard_link(&self, name: &OsStr, other: &Dir, to: &OsStr) -> io::Result<()> {
        let (name, to) = (c_string(name)?, c_string(to)?);
        // SAFETY: both names end in NUL.
        check(unsafe { libc::linkat(self.0.as_raw_fd(), name.as_ptr(), other.0.as_raw_fd(), to.as_ptr(), 0) })
    }

    /// Sets the modification time of `name`, and of a symbolic link itself.
    pub fn set_modified(&self, name: &OsStr, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        let name = c_string(name)?;
        let times = [
            libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
            libc::timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds.min(999_999_999)) },
        ];
        // SAFETY: the name ends in NUL, and there are two times.
        check(unsafe { libc::utimensat(self.0.as_raw_fd(), name.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })
    }

    /// Sets the owner of `name`, and of a symbolic link itself.
    pub fn set_owner(&self, name: &OsStr, (user, group): (u32, u32)) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::fchownat(self.0.as_raw_fd(), name.as_ptr(), user, group, libc::AT_SYMLINK_NOFOLLOW) })
    }

    /// Removes the empty directory `name`.
    ///
    /// # Errors
    ///
    /// If there is no directory of that name, or if it is not empty.
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) })
    }

    /// Sets the permission bits of the file `name`.
    ///
    /// # Errors
    ///
    /// If nothing has the name, or if its owner is another user.
    pub fn set_mode(&self, name: &OsStr, mode: libc::mode_t) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::fchmodat(self.0.as_raw_fd(), name.as_ptr(), mode, 0) })
    }

    /// Locks the directory until [`Dir::unlock`], or until the descriptor is closed. Returns
    /// whether the lock was free.
    ///
    /// # Errors
    ///
    /// If the file system has no locks. That another process holds the lock is no error.
    pub fn lock(&self) -> io::Result<bool> {
        // SAFETY: no memory is involved.
        match check(unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            locked => locked.map(|()| true),
        }
    }

    /// Releases [`Dir::lock`]. Closing the descriptor is not enough while a child process that is
    /// being started still has a copy of it.
    pub fn unlock(&self) {
        // SAFETY: no memory is involved.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }

    /// Removes the file `name`.
    ///
    /// # Errors
    ///
    /// If there is no file of that name, or if it cannot be removed.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) })
    }

    /// The names in this directory, in the file system's order.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn entries(&self) -> io::Result<Entries> {
        let own = open_at(self.0.as_raw_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let fd = own.into_raw_fd();
        // SAFETY: the descriptor is a directory's, and from here on the stream's.
        let stream = unsafe { libc::fdopendir(fd) };
        NonNull::new(stream).map(Entries).ok_or_else(|| {
            let error = io::Error::last_os_error();
            // SAFETY: `fdopendir` failed, so this function still owns the descriptor.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            error
        })
    }

    /// Writes the names in this directory to disk.
    ///
    /// # Errors
    ///
    /// If the disk reports an error.
    pub fn sync(&self) -> io::Result<()> {
        self.as_file()?.sync_all()
    }

    /// A second descriptor of this directory, as a file.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn as_file(&self) -> io::Result<File> {
        self.0.try_clone().map(File::from)
    }
}

/// The names in a directory. Each is read when it is asked for.
#[derive(Debug)]
pub struct Entries(NonNull<libc::DIR>);

// SAFETY: only the owner uses the stream, and the C library does not bind it to a thread.
unsafe impl Send for Entries {}

impl Iterator for Entries {
    type Item = io::Result<OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // SAFETY: errno belongs to this thread, the stream is open until it is dropped, and the
            // entry is copied before the next call.
            let name = unsafe {
                *libc::__errno_location() = 0;
                let entry = libc::readdir64(self.0.as_ptr());
                if entry.is_null() {
                    let error = io::Error::last_os_error();
                    return (error.raw_os_error() != Some(0)).then_some(Err(error));
                }
                CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes().to_vec()
            };
            if name != b"." && name != b".." {
                return Some(Ok(OsString::from_vec(name)));
            }
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: opened by `fdopendir`, closed once.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}

fn open_at(fd: RawFd, path: &CStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<OwnedFd> {
    loop {
        // SAFETY: the path ends in NUL.
        let opened = unsafe { libc::openat(fd, path.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        if opened >= 0 {
            // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(opened) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn stat(fd: &OwnedFd) -> io::Result<libc::stat> {
    // SAFETY: all-zero bytes are a valid stat, and the kernel writes one.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd.as_raw_fd(), &mut stat))?;
        Ok(stat)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in a path"))
}
