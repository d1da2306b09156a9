//! Network namespaces.
//!
//! A closure enters a namespace on a thread of its own, and a command in its child process. A
//! thread that the caller goes on using never changes its namespace.

use crate::error::{Error, Result};
use crate::plan::names::PREFIX;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Where `ip netns` keeps the names of namespaces.
const NAMESPACES_DIR: &str = "/run/netns";
/// How errors name a namespace that has no name.
const UNNAMED: &str = "(unnamed)";

/// Checks that the caller may create namespaces. The attempt is on a thread that ends at once, and
/// its namespaces end with it.
pub(crate) fn check_permitted() -> Result<()> {
    let outcome = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)).join();
    match outcome {
        Ok(tried) => tried.map_err(|errno| failed(UNNAMED, "cannot create it", errno)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs a closure on a new thread in a new namespace, which ends with the thread.
pub(crate) fn run_in_new<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    let outcome = std::thread::scope(|scope| scope.spawn(|| unshare(CloneFlags::CLONE_NEWNET).map(|()| work())).join());
    match outcome {
        Ok(done) => done.map_err(|errno| failed(UNNAMED, "cannot create it", errno)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The names of all namespaces of all labs, in alphabetical order.
pub(crate) fn list() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(NAMESPACES_DIR) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort();
    names
}

/// Runs a closure on a new thread in the namespace. A panic of the closure continues in the caller.
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

/// A command that will run in the namespace, with a /sys that shows the ports of the namespace.
pub(crate) fn command(namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
    if !nix::unistd::geteuid().is_root() {
        // The child could only report "operation not permitted".
        return Err(Error::NotRoot);
    }
    let file = open(namespace)?;
    let mut command = Command::new(program);
    let enter = move || -> io::Result<()> {
        setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
        // /sys/class/net shows the ports of the namespace in which /sys was mounted. A mount
        // namespace of its own hides the new mount from other processes.
        unshare(CloneFlags::CLONE_NEWNS)?;
        const NONE: Option<&str> = None;
        mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)?;
        let _ = umount2("/sys", MntFlags::MNT_DETACH);
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE)?;
        Ok(())
    };
    // SAFETY: between fork and exec, the closure only makes system calls. It does not allocate,
    // because nix copies paths this short to the stack.
    unsafe { command.pre_exec(enter) };
    Ok(command)
}

/// The ports in a namespace, without the loopback. Empty if the namespace cannot be entered, as
/// when a crash left it incomplete.
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

/// The number of processes in the namespace.
pub(crate) fn processes(namespace: &str) -> usize {
    let Ok(wanted) = std::fs::metadata(format!("{NAMESPACES_DIR}/{namespace}")) else { return 0 };
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|entry| std::fs::metadata(entry.path().join("ns/net")).ok())
        .filter(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        .count()
}

/// Sets a sysctl by its name with dots. Only sysctls under `net.` belong to a namespace; others
/// belong to the whole machine and are refused.
pub(crate) fn set_sysctl_here(key: &str, value: &str) -> io::Result<()> {
    if !key.starts_with("net.") || key.contains("..") || key.contains('/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a host has only the sysctls under net."));
    }
    std::fs::write(format!("/proc/sys/{}", key.replace('.', "/")), value)
}

fn open(namespace: &str) -> Result<File> {
    File::open(format!("{NAMESPACES_DIR}/{namespace}")).map_err(|error| failed(namespace, "cannot open it", error))
}

fn failed(namespace: &str, doing: &'static str, error: impl Into<io::Error>) -> Error {
    let source: io::Error = error.into();
    if source.kind() == io::ErrorKind::PermissionDenied {
        return Error::NotRoot;
    }
    Error::Namespace { namespace: namespace.to_owned(), doing, source }
}
