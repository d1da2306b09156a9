//! Directories as descriptors: every step below them is resolved by the kernel and cannot lead out (`openat2`, Linux 5.6).

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr::NonNull;

/// A concurrent rename can make the kernel ask for another try.
const RESOLVE_TRIES: u32 = 16;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Special,
}

impl Kind {
    fn of_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Self::File,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            _ => Self::Special,
        }
    }

    /// With its article.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symlink",
            Self::Special => "a special file",
        }
    }
}

impl Dir {
    /// Opens a directory by a path that this host's user gave, symlinks and all.
    pub(crate) fn open(path: &Path) -> io::Result<Dir> {
        let path = c_string(path.as_os_str())?;
        open_at(libc::AT_FDCWD, &path, libc::O_RDONLY | libc::O_DIRECTORY, 0).map(Dir)
    }

    /// Opens the directory at `path` below this one; an empty path is this one.
    pub(crate) fn open_dir(&self, path: &Path) -> io::Result<Dir> {
        self.beneath(path, libc::O_RDONLY | libc::O_DIRECTORY).map(Dir)
    }

    /// Opens the file at `path` below this one for reading. Never waits for the other end of a pipe.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<File> {
        self.beneath(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY).map(File::from)
    }

    /// What is at `path` below this one; symlinks that stay below are followed.
    pub(crate) fn kind(&self, path: &Path) -> io::Result<Kind> {
        stat(&self.beneath(path, libc::O_PATH)?).map(|s| Kind::of_mode(s.st_mode))
    }

    fn beneath(&self, path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { OsStr::new(".") } else { path.as_os_str() };
        let path = c_string(path)?;
        // SAFETY: all-zero bytes are a valid open_how.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (flags | libc::O_CLOEXEC) as u64;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
        for _ in 0..RESOLVE_TRIES {
            let (fd, how, length) = (self.0.as_raw_fd(), &raw const how, size_of::<libc::open_how>());
            // SAFETY: the path ends in NUL, and `how` is valid for `length` bytes.
            let opened = unsafe { libc::syscall(libc::SYS_openat2, fd, path.as_ptr(), how, length) };
            if opened >= 0 {
                // SAFETY: the kernel just returned it, and nobody else has it.
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

    /// What `name` in this directory is, itself; `None` if there is no such thing.
    pub(crate) fn kind_of(&self, name: &OsStr) -> io::Result<Option<Kind>> {
        let name = c_string(name)?;
        // SAFETY: all-zero bytes are a valid stat; the name ends in NUL.
        let (ok, stat) = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            (libc::fstatat(self.0.as_raw_fd(), name.as_ptr(), &mut stat, flags), stat)
        };
        match check(ok) {
            Ok(()) => Ok(Some(Kind::of_mode(stat.st_mode))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file `name` in this directory for reading; a symlink is an error.
    pub(crate) fn child_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0).map(File::from)
    }

    /// Opens the file `name` in this directory for reading and writing; a symlink is an error.
    pub(crate) fn child_file_writable(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0).map(File::from)
    }

    /// Opens the directory `name` in this one; a symlink is an error.
    pub(crate) fn child_dir(&self, name: &OsStr) -> io::Result<Dir> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_DIRECTORY;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0).map(Dir)
    }

    /// Creates a file that was not there, readable and writable for its owner.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        open_at(self.0.as_raw_fd(), &c_string(name)?, flags, 0o600).map(File::from)
    }

    /// Makes a directory, for its owner only.
    pub(crate) fn make_dir(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), 0o700) })
    }

    /// Gives the file `from` in this directory the name `to`, whatever had it before.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to, fd) = (c_string(from)?, c_string(to)?, self.0.as_raw_fd());
        // SAFETY: both names end in NUL.
        check(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) })
    }

    /// Gives the file `from` in this directory the name `to` in another one, whatever had it before.
    pub(crate) fn rename_into(&self, from: &OsStr, other: &Dir, to: &OsStr) -> io::Result<()> {
        let (from, to) = (c_string(from)?, c_string(to)?);
        // SAFETY: both names end in NUL.
        check(unsafe { libc::renameat(self.0.as_raw_fd(), from.as_ptr(), other.0.as_raw_fd(), to.as_ptr()) })
    }

    /// Removes the directory `name` in this one, if it is empty.
    pub(crate) fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) })
    }

    /// Gives the file `name` in this directory another mode.
    pub(crate) fn set_mode(&self, name: &OsStr, mode: libc::mode_t) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::fchmodat(self.0.as_raw_fd(), name.as_ptr(), mode, 0) })
    }

    /// Locks the directory for this descriptor until [`Dir::unlock`], or until it is closed; whether nobody else has it.
    pub(crate) fn lock(&self) -> io::Result<bool> {
        // SAFETY: no memory is involved.
        match check(unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            locked => locked.map(|()| true),
        }
    }

    /// Ends [`Dir::lock`]. Closing alone does not while a child process that is being started still has a copy of the descriptor.
    pub(crate) fn unlock(&self) {
        // SAFETY: no memory is involved.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }

    pub(crate) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the name ends in NUL.
        check(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) })
    }

    /// A stream of the names in here.
    pub(crate) fn entries(&self) -> io::Result<Entries> {
        let own = open_at(self.0.as_raw_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let fd = own.into_raw_fd();
        // SAFETY: the descriptor is a directory's, and from here on the stream's.
        let stream = unsafe { libc::fdopendir(fd) };
        NonNull::new(stream).map(Entries).ok_or_else(|| {
            let error = io::Error::last_os_error();
            // SAFETY: the stream was not made, so the descriptor is still ours.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            error
        })
    }

    pub(crate) fn as_file(&self) -> io::Result<File> {
        self.0.try_clone().map(File::from)
    }
}

/// The names in a directory, read as they are asked for.
#[derive(Debug)]
pub(crate) struct Entries(NonNull<libc::DIR>);

// SAFETY: the stream is used by whoever owns it and by nobody else; the C library binds it to no thread.
unsafe impl Send for Entries {}

impl Iterator for Entries {
    type Item = io::Result<OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // SAFETY: errno is this thread's own; the stream is open until it is dropped; the entry is used before the next call.
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
            // SAFETY: the kernel just returned it, and nobody else has it.
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
