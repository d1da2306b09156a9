//! The file system in which BPF objects have names.

use super::state::{bpffs, pins_root};
use super::{Error, Result};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

const BPF_FS_MAGIC: libc::c_long = 0xcafe_4a11;

/// Whether it is where it belongs.
pub(super) fn is_mounted() -> bool {
    // SAFETY: statfs writes to the struct that it is given; the path is a string.
    unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        libc::statfs(path().as_ptr(), &raw mut found) == 0 && found.f_type as libc::c_long == BPF_FS_MAGIC
    }
}

pub(super) fn mount() -> Result<()> {
    let kind = c"bpf".as_ptr();
    // SAFETY: all pointers are to strings, or null where that is allowed.
    let done = unsafe { libc::mount(kind, path().as_ptr(), kind, 0, std::ptr::null()) };
    if done == 0 {
        return Ok(());
    }
    let what = format!(
        "mounting the file system for BPF objects at {} (`mount -t bpf bpf {0}` as root does it)",
        bpffs().display()
    );
    Err(Error::io(what)(io::Error::last_os_error()))
}

/// Which mounts this thread sees.
pub(super) fn mount_namespace() -> String {
    let link = fs::read_link("/proc/thread-self/ns/mnt");
    link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Undoes a mount of ours, unless others use it by now.
pub(super) fn unmount(mounted_in: &str) -> Result<()> {
    if mounted_in != mount_namespace() || !is_mounted() {
        return Ok(());
    }
    let in_use =
        fs::read_dir(bpffs()).is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(|e| !is_kernels(&e.file_name()))));
    if in_use || pins_root().exists() {
        return Ok(());
    }
    // SAFETY: the path is a string.
    match unsafe { libc::umount2(path().as_ptr(), libc::MNT_DETACH) } {
        0 => Ok(()),
        _ => Err(Error::io(format!("unmounting {}", bpffs().display()))(io::Error::last_os_error())),
    }
}

/// What is in each of them from the beginning.
fn is_kernels(name: &std::ffi::OsStr) -> bool {
    name == "maps.debug" || name == "progs.debug"
}

fn path() -> CString {
    CString::new(bpffs().as_os_str().as_bytes()).unwrap_or_default()
}
