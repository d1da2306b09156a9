//! Confines a server to the folder that it serves, by Landlock.
//!
//! The server checks every path anyway. Landlock is the second barrier: after it, the kernel refuses
//! to open anything else, whatever a client makes the process do.

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use std::path::Path;

/// The kernel's interface that the rules are written for. An older kernel enforces what it knows.
const VERSION: ABI = ABI::V5;
/// What the process reads beside the folder: ports and their rates, its own state, how names become
/// addresses, and libraries that the resolver loads.
const READ: [&str; 11] = [
    "/proc",
    "/sys",
    "/dev/null",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/lib",
    "/usr/lib",
];

/// Whether the process is confined.
#[derive(Debug, PartialEq, Eq)]
pub enum Confined {
    Yes,
    /// The kernel has no Landlock, or too old a version.
    No,
}

/// Lets this thread, and those that it starts from now on, use only the folder `root`, create and write
/// files in `logs`, and read what `read` and [`READ`] name. Files that are open stay open.
pub fn confine(root: &Path, logs: Option<&Path>, read: &[&Path]) -> anyhow::Result<Confined> {
    let all = AccessFs::from_all(VERSION);
    // Without this right, no file can be moved to another folder below the root.
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer);
    let Ok(ruleset) = ruleset else { return Ok(Confined::No) };
    let ruleset = ruleset.set_compatibility(CompatLevel::BestEffort).handle_access(all);
    let mut rules = ruleset.and_then(Ruleset::create).context("Landlock")?;
    let mut allow = |path: &Path, access: BitFlags<AccessFs>| -> anyhow::Result<()> {
        let opened = PathFd::new(path)?;
        // Only folders have rights about what they contain.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
        (&mut rules).add_rule(PathBeneath::new(opened, access))?;
        Ok(())
    };
    allow(root, all & !AccessFs::Execute).with_context(|| format!("Landlock: {}", root.display()))?;
    if let Some(logs) = logs {
        let access = AccessFs::WriteFile | AccessFs::MakeReg;
        allow(logs, access).with_context(|| format!("Landlock: {}", logs.display()))?;
    }
    for path in READ.iter().map(Path::new).chain(read.iter().copied()) {
        // What the host does not have is not needed.
        let _ = allow(path, AccessFs::ReadFile | AccessFs::ReadDir);
    }
    let status = rules.restrict_self().context("Landlock")?;
    Ok(if status.ruleset == RulesetStatus::NotEnforced { Confined::No } else { Confined::Yes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;

    /// The thread of this test is confined, and ends with it.
    #[test]
    fn nothing_outside_can_be_opened() {
        let folder = std::env::temp_dir().join(format!("multirail-confine-{}", std::process::id()));
        let (root, logs, outside) = (folder.join("root"), folder.join("logs"), folder.join("outside"));
        for made in [&root, &logs, &outside] {
            fs::create_dir_all(made.join("sub")).unwrap();
            fs::write(made.join("file"), "content").unwrap();
        }
        std::os::unix::fs::symlink(outside.join("file"), root.join("link")).unwrap();
        let tested = std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                if confine(&root, Some(&logs), &[]).unwrap() == Confined::No {
                    return false;
                }
                let refused = |result: std::io::Result<()>| {
                    assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
                };
                // Inside, everything goes.
                assert_eq!(fs::read(root.join("file")).unwrap(), b"content");
                fs::write(root.join("new"), "new").unwrap();
                fs::rename(root.join("new"), root.join("sub/new")).unwrap();
                fs::hard_link(root.join("file"), root.join("sub/linked")).unwrap();
                fs::create_dir(root.join("sub/dir")).unwrap();
                fs::remove_dir_all(root.join("sub")).unwrap();
                // Outside, nothing does.
                refused(fs::read(outside.join("file")).map(drop));
                refused(fs::read("/etc/passwd").map(drop));
                refused(fs::read(root.join("link")).map(drop));
                refused(fs::write(outside.join("file"), "x"));
                refused(fs::File::create(outside.join("new")).map(drop));
                refused(fs::read_dir(&outside).map(drop));
                refused(fs::remove_file(outside.join("file")));
                refused(fs::create_dir(outside.join("dir")));
                refused(std::os::unix::fs::symlink("x", outside.join("symlink")));
                refused(std::process::Command::new("/bin/true").status().map(drop));
                // Logs can be written to, and not be read.
                fs::write(logs.join("new"), "line").unwrap();
                refused(fs::read(logs.join("new")).map(drop));
                assert!(fs::read_to_string("/proc/self/status").is_ok());
                // Threads that start later are confined, too.
                let path = outside.join("file");
                std::thread::spawn(move || refused(fs::read(path).map(drop))).join().unwrap();
                true
            });
            confined.join()
        });
        let outside_is_open = fs::read(outside.join("file")).is_ok();
        fs::remove_dir_all(&folder).unwrap();
        match tested {
            Ok(true) => assert!(outside_is_open, "other threads are not confined"),
            Ok(false) => {
                multirail_testing::skip(multirail_testing::Requirement::Landlock, "the kernel has no Landlock")
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
