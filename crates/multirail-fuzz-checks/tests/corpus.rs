//! Every input that fuzzing has saved in `fuzz/corpus` goes through its decoder.

use multirail_fuzz_checks as checks;
use std::path::Path;

/// Runs the saved inputs of one target; there must be some.
fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("an entry").path();
        println!("{target}: {}", path.display());
        check(&std::fs::read(&path).expect("a saved input"));
        count += 1;
    }
    assert!(count > 0, "no input in {}", folder.display());
}

#[test]
fn frames() {
    run("frame", checks::frame);
}

#[test]
fn control_packets() {
    run("control", checks::control);
}

#[test]
fn sessions() {
    run("session", checks::session);
}

#[test]
fn members_of_broadcasts() {
    run("member", checks::member);
}

#[test]
fn copies_of_filters() {
    run("copy", checks::copy);
}

#[test]
fn byte_streams() {
    run("streams", checks::streams);
}

#[test]
fn units() {
    run("units", checks::units);
}

#[test]
fn filters() {
    run("filter", checks::filter);
}

#[test]
fn hellos() {
    run("hello", checks::hello);
}

#[test]
fn hosts_of_placement() {
    run("hosts", checks::hosts);
}
