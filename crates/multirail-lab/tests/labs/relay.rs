//! Tests of the start and the end of the relay process.

use crate::common::{RECEIVE_TIMEOUT, namespaces, reaches, socket, supported, wan};
use multirail_lab::{Lab, Topology};
use multirail_testing::{Requirement, skip};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that tells the helper below what to do.
const HELPER: &str = "MULTIRAIL_LAB_TEST_HELPER";

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("(mrlab-relay)") && !stat.contains(") Z ")
}

fn is_gone_soon(pid: u32) -> bool {
    let start = Instant::now();
    while is_running(pid) && start.elapsed() < RECEIVE_TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    !is_running(pid)
}

fn shared_file(lab: &str) -> PathBuf {
    PathBuf::from(format!("/run/multirail-lab/{lab}.relay"))
}

/// A lab with a relay. Where the kernel needs none, `None`, and the test is reported as skipped.
fn relayed() -> Option<(Lab, u32)> {
    if !supported() {
        return None;
    }
    let lab = wan(&["a", "b"], "delay='1ms'");
    match lab.relay_pid().unwrap() {
        Some(pid) => Some((lab, pid)),
        None => {
            skip(Requirement::NoNetem, "this kernel has netem, so labs have no relay");
            None
        }
    }
}

#[test]
fn a_relay_ends_with_its_lab() {
    let Some((lab, pid)) = relayed() else { return };
    let name = lab.name().to_owned();
    assert!(is_running(pid) && shared_file(&name).exists());
    drop(lab);
    assert!(!is_running(pid) && !shared_file(&name).exists());
    assert_eq!(namespaces(&name), [""; 0]);
}

#[test]
fn a_lab_whose_relay_has_died_is_taken_down() {
    let Some((lab, pid)) = relayed() else { return };
    let name = lab.name().to_owned();
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    assert!(is_gone_soon(pid));
    drop(lab);
    assert_eq!(namespaces(&name), [""; 0]);
    assert!(!shared_file(&name).exists());
}

#[test]
fn a_relay_ends_when_its_ports_are_deleted() {
    let Some((lab, pid)) = relayed() else { return };
    for host in ["a", "b"] {
        let mut delete = lab.command(host, "ip").unwrap();
        assert!(delete.args(["link", "delete", "rail0"]).status().unwrap().success());
    }
    assert!(is_gone_soon(pid));
}

#[test]
fn a_relay_of_a_killed_owner_ends_and_the_next_up_removes_its_lab() {
    if relayed().is_none() {
        return;
    }
    let (mut owner, name, pid) = helper("stay");
    assert!(is_running(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(is_gone_soon(pid));
    assert_eq!(namespaces(&name).len(), 2);
    drop(relayed());
    assert_eq!(namespaces(&name), [""; 0]);
    assert!(!shared_file(&name).exists());
}

#[test]
fn the_relay_of_a_kept_lab_outlives_its_creator_and_holds_none_of_its_files() {
    if relayed().is_none() {
        return;
    }
    let (mut owner, name, pid) = helper("keep");
    // As in `lab up | cat`: reading ends when no process holds the pipe.
    let mut rest = String::new();
    owner.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(owner.wait().unwrap().success());
    // A relay that does not survive its creator ends at once.
    std::thread::sleep(Duration::from_millis(50));
    assert!(is_running(pid));
    let lab = Lab::open(&name).unwrap();
    let at = |host| socket(&lab, host, (lab.address(host, 0).unwrap(), 0));
    assert!(reaches(&at("a"), &at("b")));
    for file in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let file = std::fs::read_link(file.unwrap().path()).unwrap();
        let file = file.to_str().unwrap();
        assert!(
            ["/dev/null", "/dev/net/tun", "anon_inode:[pidfd]"].contains(&file) || file.starts_with("pidfd:"),
            "{file}"
        );
    }
    assert_eq!(Lab::take_down(&name).unwrap().namespaces, 2);
    assert!(!is_running(pid));
}

/// Starts a process that creates a lab with a relay. Returns the process, the name of the lab and
/// the PID of the relay.
fn helper(what: &str) -> (Child, String, u32) {
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "relay::helper_process", "--ignored", "--nocapture"])
        .env(HELPER, what)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(helper.stdout.take().unwrap());
    let mut line = String::new();
    let words = loop {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the helper printed nothing");
        // The test harness may have printed the beginning of the line.
        if let Some((_, words)) = line.split_once("lab: ") {
            break words;
        }
    };
    let (name, pid) = words.trim().split_once(' ').unwrap();
    let found = (name.to_owned(), pid.parse().unwrap());
    helper.stdout = Some(lines.into_inner());
    (helper, found.0, found.1)
}

#[test]
#[ignore = "other tests start it"]
fn helper_process() {
    let Ok(what) = std::env::var(HELPER) else { return };
    let topology = Topology::from_toml("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\ndelay='1ms'").unwrap();
    let lab = Lab::temporary(&topology).unwrap();
    println!("lab: {} {}", lab.name(), lab.relay_pid().unwrap().unwrap());
    match what.as_str() {
        "keep" => drop(lab.keep().unwrap()),
        // Longer than any test. The test kills it.
        _ => std::thread::sleep(Duration::from_secs(60)),
    }
}
