//! The BPF file system, in which objects of the kernel are pinned.

use crate::{Error, Result};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const BPFFS: &str = "/sys/fs/bpf";
const BPF_FS_MAGIC: libc::c_long = 0xcafe_4a11;

/// The directory that contains a directory of pins for each network namespace.
pub(crate) fn pin_root() -> PathBuf {
    Path::new(BPFFS).join("multirail-place")
}

/// Whether the file system is mounted at its usual place.
pub(crate) fn is_mounted() -> bool {
    // SAFETY: the path ends with a zero byte, and statfs writes to a struct that outlives the call.
    unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        libc::statfs(path().as_ptr(), &raw mut found) == 0 && found.f_type as libc::c_long == BPF_FS_MAGIC
    }
}

/// Mounts the file system at its usual place. Only this user can pin objects in it, as where systemd
/// mounts it.
pub(crate) fn mount() -> Result<()> {
    let kind = c"bpf".as_ptr();
    // SAFETY: the strings end with a zero byte.
    let result = unsafe { libc::mount(kind, path().as_ptr(), kind, 0, c"mode=0700".as_ptr().cast()) };
    if result == 0 {
        return Ok(());
    }
    let what = format!("mounting the BPF file system at {BPFFS} (root can do this: `mount -t bpf bpf {BPFFS}`)");
    Err(Error::io(what)(io::Error::last_os_error()))
}

/// Identifies the mount namespace of this thread.
pub(crate) fn mount_namespace() -> String {
    let link = fs::read_link("/proc/thread-self/ns/mnt");
    link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Unmounts the file system if `up` mounted it in `mounted_in`, and nothing else is pinned there.
pub(crate) fn unmount(mounted_in: &str) -> Result<()> {
    if mounted_in != mount_namespace() || !is_mounted() {
        return Ok(());
    }
    let in_use =
        fs::read_dir(BPFFS).is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(|e| !is_builtin(&e.file_name()))));
    if in_use || pin_root().exists() {
        return Ok(());
    }
    // SAFETY: the path ends with a zero byte.
    match unsafe { libc::umount2(path().as_ptr(), libc::MNT_DETACH) } {
        0 => Ok(()),
        _ => Err(Error::io(format!("unmounting {BPFFS}"))(io::Error::last_os_error())),
    }
}

/// Whether the kernel makes this entry in every BPF file system.
fn is_builtin(name: &std::ffi::OsStr) -> bool {
    name == "maps.debug" || name == "progs.debug"
}

fn path() -> CString {
    CString::new(Path::new(BPFFS).as_os_str().as_bytes()).unwrap_or_default()
}
