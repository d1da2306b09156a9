//! Reports of tests that cannot run on this machine.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic::Location;
use std::path::Path;

/// The environment variable with the file that reports are appended to. `make test` sets it.
pub const SKIPPED_VARIABLE: &str = "MULTIRAIL_SKIPPED_TESTS";

/// What a machine must have for a test. `scripts/skipped-tests` has a probe for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requirement {
    /// Separate network namespaces with veth pairs and `tc`, as a lab needs them. In practice,
    /// root.
    Namespaces,
    /// Permission to load BPF programs, and a kernel with type information for them.
    Bpf,
    /// A writable file system of cgroups of version 2.
    Cgroup2,
    /// Permission to mount a tmpfs.
    Tmpfs,
    /// The device /dev/fuse, and permission to mount file systems of programs with it.
    Fuse,
    /// A kernel with netem.
    Netem,
    /// A kernel without netem, where labs have a relay of their own.
    NoNetem,
    /// A kernel that can make network interfaces of this kind (`ip link add type KIND`).
    LinkKind(&'static str),
    /// Permission to open more than 10,000 files.
    OpenFiles,
    /// The server of OpenSSH, with its client and `ssh-keygen`.
    Sshd,
    /// The program `strace`, and permission to trace other processes.
    Strace,
    /// A kernel with Landlock, version 2 or later.
    Landlock,
    /// The program `systemd-analyze`.
    SystemdAnalyze,
    /// The headers and libraries of UCX, and a build with the feature `ucx`.
    Ucx,
    /// A temporary folder on a file system with extended attributes of users.
    Xattrs,
    /// A temporary folder on a file system with access control lists.
    Acls,
    /// The program `unshare` of util-linux, and permission to make time namespaces with it.
    TimeNamespaces,
    /// The library of libfaketime.
    Faketime,
    /// The program of this name.
    Program(&'static str),
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Namespaces => f.write_str("namespaces"),
            Requirement::Bpf => f.write_str("bpf"),
            Requirement::Cgroup2 => f.write_str("cgroup2"),
            Requirement::Tmpfs => f.write_str("tmpfs"),
            Requirement::Fuse => f.write_str("fuse"),
            Requirement::Netem => f.write_str("netem"),
            Requirement::NoNetem => f.write_str("no-netem"),
            Requirement::LinkKind(kind) => write!(f, "link-kind-{kind}"),
            Requirement::OpenFiles => f.write_str("open-files"),
            Requirement::Sshd => f.write_str("sshd"),
            Requirement::Strace => f.write_str("strace"),
            Requirement::Landlock => f.write_str("landlock"),
            Requirement::SystemdAnalyze => f.write_str("systemd-analyze"),
            Requirement::Ucx => f.write_str("ucx"),
            Requirement::Xattrs => f.write_str("xattrs"),
            Requirement::Acls => f.write_str("acls"),
            Requirement::TimeNamespaces => f.write_str("time-namespaces"),
            Requirement::Faketime => f.write_str("faketime"),
            Requirement::Program(name) => write!(f, "program-{name}"),
        }
    }
}

/// Reports that the calling test, or a part of it, is skipped: this machine lacks `requirement`.
/// The test returns then.
///
/// The report is printed, and appended to the file that [`SKIPPED_VARIABLE`] names, as a line of
/// three fields between tabs: the test, the requirement and the reason. Call this in the thread of
/// the test: the thread's name is the test's.
///
/// # Panics
///
/// When the report cannot be appended, since the skip would not be seen.
#[track_caller]
pub fn skip(requirement: Requirement, reason: impl fmt::Display) {
    let thread = std::thread::current();
    let test = match thread.name() {
        // The harness runs tests on the main thread when it has only one.
        None | Some("main") => Location::caller().to_string(),
        Some(name) => name.to_owned(),
    };
    let line = report(&format!("{}::{test}", binary()), requirement, &reason.to_string());
    eprintln!("skipped: {reason} ({requirement})");
    if let Some(file) = std::env::var_os(SKIPPED_VARIABLE) {
        append(Path::new(&file), &line).unwrap_or_else(|error| panic!("cannot report a skipped test: {error}"));
    }
}

fn report(test: &str, requirement: Requirement, reason: &str) -> String {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{test}\t{requirement}\t{reason}\n")
}

/// Appends with one call of the kernel, since several processes write to the file.
fn append(file: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

/// The name of the test binary, without the hash that cargo appends.
fn binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 => name.to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_of_three_fields() {
        let line = report("labs::wan::x", Requirement::LinkKind("gre"), "this kernel\nhas\tnone");
        assert_eq!(line, "labs::wan::x\tlink-kind-gre\tthis kernel has none\n");
    }

    #[test]
    fn reports_are_appended() {
        let file = std::env::temp_dir().join(format!("multirail-testing-{}", std::process::id()));
        append(&file, "a\n").unwrap();
        append(&file, "b\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\nb\n");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(binary(), "multirail_testing");
    }
}
