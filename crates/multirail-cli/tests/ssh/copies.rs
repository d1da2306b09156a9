//! Copies that succeed.

use super::sshd::{Hosts, names, stderr, tree};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Names that a shell would take for something else.
const NAMES: [&[u8]; 9] = [
    b"plain",
    b"with space",
    b"it's \"quoted\"",
    b"line\nfeed",
    b"$(touch injected)`touch injected`; touch injected #",
    b"-rf",
    b"* ? [a] {b,c} ~ ! \\",
    b"a:b@c",
    b"\xff\xfe not UTF-8",
];

fn make_tree(hosts: &Hosts) {
    for (number, name) in NAMES.iter().enumerate() {
        let dir = hosts.near("src").join(OsStr::from_bytes(name));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(OsStr::from_bytes(name)), vec![number as u8; number * 20_000]).unwrap();
    }
}

#[test]
fn a_tree_goes_there_and_back() {
    let Some(hosts) = Hosts::start("tree") else { return };
    make_tree(&hosts);
    let put = hosts.cp().args(["-r", "--json", "src", "far:"]).output().unwrap();
    assert_eq!((put.status.code(), stderr(&put).as_str()), (Some(0), ""));
    let summary: serde_json::Value = serde_json::from_slice(&put.stdout).unwrap();
    assert_eq!(summary["files"], NAMES.len(), "{summary}");
    assert!(tree(&hosts.near("src")) == tree(&hosts.far("src")));

    let get = hosts.cp().args(["-r", "far:src/", "back"]).output().unwrap();
    assert_eq!((get.status.code(), stderr(&get).as_str()), (Some(0), ""));
    assert!(tree(&hosts.near("src")) == tree(&hosts.near("back")));
    hosts.wait_until_far_is_idle();
}

/// No character of a path is read by a shell, in either direction.
#[test]
fn remote_paths_are_bytes() {
    let Some(hosts) = Hosts::start("paths") else { return };
    fs::write(hosts.near("file"), "x").unwrap();
    for name in NAMES {
        let remote = [b"far:", name].concat();
        let put = hosts.cp().arg("file").arg(OsStr::from_bytes(&remote)).output().unwrap();
        assert_eq!(put.status.code(), Some(0), "{}", stderr(&put));
        assert_eq!(fs::read(hosts.far(OsStr::from_bytes(name))).unwrap(), b"x");
        let get = hosts.cp().arg("--").arg(OsStr::from_bytes(&remote)).arg("back").output().unwrap();
        assert_eq!(get.status.code(), Some(0), "{}", stderr(&get));
        fs::remove_file(hosts.near("back")).unwrap();
        fs::remove_file(hosts.far(OsStr::from_bytes(name))).unwrap();
    }
    assert!(tree(&hosts.far("")).is_empty(), "nothing else was made: {:?}", tree(&hosts.far("")));
}

#[test]
fn paths_begin_at_the_home_or_at_the_root() {
    let Some(hosts) = Hosts::start("home") else { return };
    fs::write(hosts.near("file"), "x").unwrap();
    fs::create_dir(hosts.far("dir")).unwrap();
    std::os::unix::fs::symlink(hosts.far("dir"), hosts.far("link")).unwrap();
    let absolute = hosts.far("absolute");
    for (path, arrives) in [
        ("", "file"),
        ("~", "file"),
        ("~/dir", "dir/file"),
        ("dir/new", "dir/new"),
        ("link/", "dir/file"),
        ("dir/../named", "named"),
        (absolute.to_str().unwrap(), "absolute"),
    ] {
        let put = hosts.cp().args(["file", &format!("far:{path}")]).output().unwrap();
        assert_eq!(put.status.code(), Some(0), "{path}: {}", stderr(&put));
        fs::remove_file(hosts.far(arrives)).unwrap();
    }
    let refused = hosts.cp().args(["file", "far:nowhere/at/all"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("nowhere/at: No such file or directory"), "{}", stderr(&refused));
}

/// Keys are made for the copy, and their user says once that data is not encrypted.
#[test]
fn a_copy_leaves_no_keys_and_may_be_plain() {
    let Some(hosts) = Hosts::start("keys") else { return };
    fs::write(hosts.near("file"), "x").unwrap();
    for options in [&[][..], &["--plaintext"]] {
        let put = hosts.cp().env("HOME", hosts.near("")).args(options).args(["file", "far:"]).output().unwrap();
        assert_eq!((put.status.code(), stderr(&put).as_str()), (Some(0), ""), "{options:?}");
        assert_eq!((names(&hosts.near("")), names(&hosts.far(""))), (vec!["file".to_owned()], vec!["file".to_owned()]));
    }
}

/// What the start-up files of a shell print is no part of the dialogue. What they print to stderr
/// is shown, and cannot control the terminal.
#[test]
fn a_shell_may_print() {
    let Some(hosts) = Hosts::start("noise") else { return };
    fs::write(hosts.near("file"), "x").unwrap();
    hosts.on_login("echo Welcome; echo 'multirail-copy'; printf 'be \\033[2J careful\\n' >&2");
    let put = hosts.cp().args(["file", "far:"]).output().unwrap();
    assert_eq!(put.status.code(), Some(0), "{}", stderr(&put));
    assert_eq!(stderr(&put), "be \\u{1b}[2J careful\n");
}

#[test]
fn the_far_side_listens_on_the_ports_that_were_given() {
    let Some(hosts) = Hosts::start("ports") else { return };
    fs::write(hosts.near("file"), "x").unwrap();
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = hosts.cp().args(["--ports", &port, "file", "far:"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let text = format!(
        "error: far cannot serve the copy: the server there did not start: port {port} cannot be used: Address already in use"
    );
    assert!(stderr(&refused).starts_with(&text), "{}", stderr(&refused));
    drop(taken);
    let put = hosts.cp().args(["--json", "--ports", &port, "file", "far:"]).output().unwrap();
    assert_eq!(put.status.code(), Some(0), "{}", stderr(&put));
    let summary: serde_json::Value = serde_json::from_slice(&put.stdout).unwrap();
    let remote = summary["rails"][0]["remote"].as_str().unwrap().to_owned();
    assert!(remote.ends_with(&format!(":{port}")), "{remote}");
}
