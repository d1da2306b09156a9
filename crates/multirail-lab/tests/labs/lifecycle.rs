//! Tests of the creation and removal of labs, also after crashes.

use crate::common::{lab, namespaces, supported};
use multirail_lab::{Error, Lab, Topology};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn state_file(lab: &str) -> PathBuf {
    PathBuf::from(format!("/run/multirail-lab/{lab}.json"))
}

#[test]
fn dropping_leaves_nothing_behind() {
    if !supported() {
        return;
    }
    let lab = lab(&["a", "b", "c"], &["100mbit", "-"]);
    let name = lab.name().to_owned();
    assert_eq!(namespaces(&name).len(), 5, "three hosts and two switches");
    assert!(state_file(&name).exists());
    drop(lab);
    assert_eq!(namespaces(&name), [""; 0]);
    assert!(!state_file(&name).exists());
}

#[test]
fn a_panic_takes_the_lab_down() {
    if !supported() {
        return;
    }
    let mut name = String::new();
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let lab = lab(&["a", "b"], &["-"]);
        name = lab.name().to_owned();
        lab.run_in("a", || panic!("on purpose")).unwrap();
    }));
    let panic = outcome.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"), "the closure's own panic arrives");
    assert_eq!(namespaces(&name), [""; 0]);
}

#[test]
fn a_second_lab_of_the_same_name_is_refused_and_the_first_stays() {
    if !supported() {
        return;
    }
    let first = lab(&["a", "b"], &["-"]);
    let topology = Topology::simple(&["a", "b"], &["-"]).unwrap();
    assert!(matches!(Lab::up(first.name(), &topology), Err(Error::AlreadyUp(_))));
    assert_eq!(namespaces(first.name()).len(), 2);
}

#[test]
fn a_failed_up_removes_what_it_made() {
    if !supported() {
        return;
    }
    let name = format!("failing-{}", std::process::id());
    let mut topology = Topology::simple(&["a", "b"], &["-"]).unwrap();
    topology.hosts[1].sysctl.insert("net.ipv4.no_such_thing".into(), "1".into());
    let error = Lab::up(&name, &topology).unwrap_err();
    assert!(matches!(error, Error::Sysctl { .. }), "{error}");
    assert_eq!(namespaces(&name), [""; 0]);
    assert!(!state_file(&name).exists());
}

#[test]
fn leftovers_without_a_state_are_removed() {
    if !supported() {
        return;
    }
    let kept = lab(&["a", "b"], &["10mbit"]).keep().unwrap();
    let name = kept.name().to_owned();
    drop(kept);
    assert_eq!(namespaces(&name).len(), 2, "a kept lab stays");
    // A crash may leave no state, one complete namespace, and only the file of the other.
    std::fs::remove_file(state_file(&name)).unwrap();
    assert!(Command::new("ip").args(["netns", "delete", &format!("mrlab-{name}-a")]).status().unwrap().success());
    std::fs::write(format!("/run/netns/mrlab-{name}-a"), "").unwrap();
    assert!(Lab::list().unwrap().iter().any(|lab| lab.name == name && lab.topology.is_none()));
    assert_eq!(Lab::take_down(&name).unwrap().namespaces, 2);
    assert_eq!(namespaces(&name), [""; 0]);
    assert_eq!(Lab::take_down(&name).unwrap().namespaces, 0, "a missing lab is no error");
}

#[test]
fn the_next_up_removes_the_lab_of_a_dead_process() {
    if !supported() {
        return;
    }
    // A state that names a process that has ended.
    let kept = lab(&["a", "b"], &["-"]).keep().unwrap();
    let name = kept.name().to_owned();
    let text = std::fs::read_to_string(state_file(&name)).unwrap();
    let text = text.replace("\"owner\": null", "\"owner\": { \"pid\": 4294967295, \"start_ticks\": 1 }");
    std::fs::write(state_file(&name), text).unwrap();
    drop(lab(&["a", "b"], &["-"]));
    assert_eq!(namespaces(&name), [""; 0]);
}

#[test]
fn a_lab_whose_name_begins_with_the_same_text_stays() {
    if !supported() {
        return;
    }
    let topology = Topology::simple(&["a", "b"], &["-"]).unwrap();
    let short = format!("alike-{}", std::process::id());
    let long = Lab::up(&format!("{short}-more"), &topology).unwrap();
    drop(Lab::up(&short, &topology).unwrap());
    assert_eq!(namespaces(long.name()).len(), 2);
}

#[test]
fn ports_are_deleted_although_a_process_stays() {
    if !supported() {
        return;
    }
    let lab = lab(&["a", "b"], &["-"]);
    let name = lab.name().to_owned();
    // The process lists its ports after the lab has been taken down.
    let mut stays = lab.command("a", "sh").unwrap();
    let mut stays = stays
        .args(["-c", "echo here; read line; ip -o link | grep -c rail0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Read;
    stays.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    let removed = Lab::take_down(&name).unwrap();
    assert!(removed.processes >= 1);
    drop(stays.stdin.take());
    let output = stays.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
}
