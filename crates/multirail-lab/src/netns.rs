//! Entering namespaces: on a thread of its own for a closure, in the child for a command. Never in a thread that the
//! caller goes on using.

use crate::error::{Error, Result};
use crate::names::PREFIX;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Where `ip netns` keeps the names of namespaces.
const NAMESPACES_DIR: &str = "/run/netns";

/// Whether namespaces may be made and entered: tried on a thread that ends at once, and the namespace with it.
pub(crate) fn check_permitted() -> Result<()> {
    let tried = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)).join();
    match tried {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errno)) => Err(failed("of its own", "cannot make it", errno)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs a closure on a new thread in a namespace of its own, which goes with it.
pub(crate) fn run_in_new<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    let outcome = std::thread::scope(|scope| scope.spawn(|| unshare(CloneFlags::CLONE_NEWNET).map(|()| work())).join());
    match outcome {
        Ok(done) => done.map_err(|errno| failed("of its own", "cannot make it", errno)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The names of all namespaces made by this crate, of any lab.
pub(crate) fn list() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(NAMESPACES_DIR) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort();
    names
}

/// Runs a closure on a new thread that has entered the namespace. A panic of the closure goes on in the caller.
pub(crate) fn run_in<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let file = open(namespace)?;
    let outcome = std::thread::scope(|scope| {
        let worker = scope.spawn(|| -> nix::Result<T> {
            setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        worker.join()
    });
    match outcome {
        Ok(done) => done.map_err(|errno| failed(namespace, "cannot enter it", errno)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A command that will run in the namespace, with a /sys that shows the namespace's ports.
pub(crate) fn command(namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
    if !nix::unistd::geteuid().is_root() {
        // In the child it would be a bare "operation not permitted".
        return Err(Error::NotRoot);
    }
    let file = open(namespace)?;
    let mut command = Command::new(program);
    let enter = move || -> io::Result<()> {
        setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
        // /sys/class/net shows the ports of the namespace in which it was mounted. The new mount must not be seen outside.
        unshare(CloneFlags::CLONE_NEWNS)?;
        const NONE: Option<&str> = None;
        mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)?;
        let _ = umount2("/sys", MntFlags::MNT_DETACH);
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE)?;
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; nix copies paths this short to the stack.
    unsafe { command.pre_exec(enter) };
    Ok(command)
}

/// The ports in a namespace, without the loopback. None if the namespace cannot be entered, as when it is half-made.
pub(crate) fn ports(namespace: &str) -> Vec<String> {
    let names = || -> Vec<String> {
        let interfaces = nix::net::if_::if_nameindex();
        let interfaces = interfaces.as_ref().map(|list| list.to_slice()).unwrap_or_default();
        interfaces.iter().map(|interface| interface.name().to_string_lossy().into_owned()).collect()
    };
    let mut ports = run_in(namespace, names).unwrap_or_default();
    ports.retain(|port| port != "lo");
    ports
}

/// How many processes are still in the namespace.
pub(crate) fn processes(namespace: &str) -> usize {
    use std::os::unix::fs::MetadataExt;
    let Ok(wanted) = std::fs::metadata(format!("{NAMESPACES_DIR}/{namespace}")) else { return 0 };
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|entry| std::fs::metadata(entry.path().join("ns/net")).ok())
        .filter(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        .count()
}

/// Sets a sysctl of the namespace that the calling thread is in.
pub(crate) fn set_sysctl_here(key: &str, value: &str) -> io::Result<()> {
    if !key.starts_with("net.") || key.contains("..") || key.contains('/') {
        // Others belong to the whole machine, not to the namespace.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "only sysctls under net. belong to a host of a lab"));
    }
    std::fs::write(format!("/proc/sys/{}", key.replace('.', "/")), value)
}

fn open(namespace: &str) -> Result<File> {
    File::open(format!("{NAMESPACES_DIR}/{namespace}")).map_err(|e| failed(namespace, "cannot open it", e))
}

fn failed(namespace: &str, doing: &'static str, error: impl Into<io::Error>) -> Error {
    let reason: io::Error = error.into();
    if reason.kind() == io::ErrorKind::PermissionDenied {
        return Error::NotRoot;
    }
    Error::Namespace { namespace: namespace.to_owned(), doing, reason }
}
