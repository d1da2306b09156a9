//! Copies that end before they are done.

use super::sshd::{Hosts, names, signal, stderr};
use std::process::Child;

/// The sessions of ssh that a copy has started.
fn children(copy: &Child) -> Vec<i32> {
    let all = std::fs::read_dir(format!("/proc/{}/task", copy.id())).unwrap();
    let all = all.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap());
    let all: Vec<i32> =
        all.flat_map(|pids| pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect();
    assert!(!all.is_empty());
    all
}

#[test]
fn a_killed_client_leaves_nothing_on_the_other_host() {
    let Some(hosts) = Hosts::start("client-killed") else { return };
    for upload in [true, false] {
        let mut copy = hosts.start_big(upload, &[]);
        assert!(!hosts.processes().is_empty());
        copy.kill().unwrap();
        copy.wait().unwrap();
        hosts.wait_until_far_is_idle();
    }
    assert_eq!(names(&hosts.far("copy")), [""; 0], "the incomplete file is removed");
}

#[test]
fn an_interrupted_copy_ends_on_both_sides() {
    let Some(hosts) = Hosts::start("interrupted") else { return };
    for upload in [true, false] {
        let copy = hosts.start_big(upload, &[]);
        signal(&copy, libc::SIGINT);
        let output = copy.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with("error: interrupted"), "{}", stderr(&output));
        // The far side has ended before the near one.
        assert_eq!(hosts.processes(), []);
    }
    assert!(names(&hosts.far("copy")).is_empty() && names(&hosts.near("copy")).is_empty());
}

#[test]
fn a_killed_ssh_ends_both_sides() {
    let Some(hosts) = Hosts::start("ssh-killed") else { return };
    let copy = hosts.start_big(true, &[]);
    for pid in children(&copy) {
        // SAFETY: no memory is involved; the process is a child of a child.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let output = copy.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = "error: the server on far ended during the copy: signal 9 has ended it";
    assert!(stderr(&output).starts_with(text), "{}", stderr(&output));
    hosts.wait_until_far_is_idle();
    assert_eq!(names(&hosts.far("copy")), [""; 0], "the incomplete file is removed");
}

#[test]
fn a_killed_server_ends_the_copy() {
    let Some(hosts) = Hosts::start("server-killed") else { return };
    let copy = hosts.start_big(false, &[]);
    for (pid, said) in hosts.processes() {
        if said.windows(11).any(|window| window == b"copy-server") {
            // SAFETY: the process carries the mark of this test.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
    let output = copy.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text =
        "error: the server on far ended during the copy: it has lost its connection, or the program there was killed";
    assert!(stderr(&output).starts_with(text), "{}", stderr(&output));
    assert!(names(&hosts.near("copy")).is_empty());
    hosts.wait_until_far_is_idle();
}
