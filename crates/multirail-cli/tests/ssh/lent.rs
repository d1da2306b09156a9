//! The program of the near side, lent to a host that has none.

use super::sshd::{Hosts, signal, stderr, wait_until};
use std::fs;
use std::process::Stdio;

#[test]
fn a_lent_program_copies_and_is_removed() {
    let Some(hosts) = Hosts::start("lent") else { return };
    hosts.far_program("multirail", None);
    fs::write(hosts.near("file"), "x").unwrap();
    let put = hosts.cp().args(["--push-binary", "file", "far:"]).output().unwrap();
    assert_eq!((put.status.code(), stderr(&put).as_str()), (Some(0), ""));
    let get = hosts.cp().args(["--push-binary", "far:file", "back"]).output().unwrap();
    assert_eq!((get.status.code(), stderr(&get).as_str()), (Some(0), ""));
    assert_eq!(fs::read(hosts.near("back")).unwrap(), b"x");
    hosts.wait_until_far_is_idle();
}

/// Nothing is left, whenever the client is killed.
#[test]
fn a_killed_client_leaves_no_program() {
    let Some(hosts) = Hosts::start("lent-killed") else { return };
    hosts.far_program("multirail", None);
    let mut copy = hosts.start_big(true, &["--push-binary"]);
    copy.kill().unwrap();
    copy.wait().unwrap();
    hosts.wait_until_far_is_idle();
    // While the program is on its way: the far side reads slowly.
    hosts.far_program(
        "head",
        Some("#!/bin/sh\nsleep 0.2; /usr/bin/head -c 100; sleep 0.2; exec /usr/bin/head \"$@\"\n"),
    );
    let mut copy = hosts.cp().args(["--push-binary", "big", "far:"]).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the program is being written", || {
        hosts.processes().iter().any(|(_, said)| said.starts_with(b"/bin/sh\0") && contains(said, b"/head\0"))
    });
    signal(&copy, libc::SIGKILL);
    copy.wait().unwrap();
    hosts.wait_until_far_is_idle();
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_program_is_not_lent_where_it_cannot_run() {
    let Some(hosts) = Hosts::start("lent-refused") else { return };
    fs::write(hosts.near("file"), "x").unwrap();
    let fails = || {
        let output = hosts.cp().args(["--push-binary", "file", "far:"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        hosts.wait_until_far_is_idle();
        stderr(&output)
    };
    hosts.far_program("uname", Some("#!/bin/sh\necho Linux mips\n"));
    let text = fails();
    assert!(
        text.contains("the program of this side is for Linux ") && text.contains("that host is Linux mips"),
        "{text}"
    );
    hosts.far_program("uname", None);
    // The far side lacks a library of the program: it gets a program that says so.
    hosts
        .far_program("head", Some("#!/bin/sh\n/usr/bin/head \"$@\" >/dev/null; printf 'exit 1 #%*s' $(($2 - 8)) ''\n"));
    let text = fails();
    assert!(text.contains("far cannot serve the copy: the program does not run there\nhint: "), "{text}");
}
