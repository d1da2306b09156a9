use crate::{Filters, Group, PipelineError, Schedule, StreamOptions};
use multirail_net::Config;
use multirail_testing::{Requirement, skip};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let path = std::env::temp_dir().join(format!("multirail-built-in-{:016x}", u64::from_le_bytes(random)));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs filters one after the other: name and kind, parameters, copies.
fn run(root: &Path, chunk_bytes: u64, filters: &[(&str, Value, usize)]) -> Result<(), PipelineError> {
    let known = Filters::built_in(root);
    let mut group = Group::new(Config::default());
    group.chunk_bytes(chunk_bytes);
    for (kind, parameters, copies) in filters {
        group.filter_of_kind(kind, kind, parameters.clone(), &known).copies(*copies);
    }
    for pair in filters.windows(2) {
        group.stream(pair[0].0, pair[1].0);
    }
    group.start()?.run(b"")
}

fn failure(filters: &[(&str, Value, usize)]) -> String {
    let folder = Folder::new();
    let told = run(&folder.0, 1000, filters).unwrap_err().to_string();
    assert_eq!(folder.names(), [""; 0], "after {told}");
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// For any chunks, numbers of copies and orders of arrival.
    #[test]
    fn a_file_is_written_as_it_was_read(bytes in 0u64..40_000, chunk in 1u64..5_000, copies in prop::collection::vec(1usize..4, 3)) {
        let folder = Folder::new();
        let made = [("generate", json!({"bytes": bytes, "chunk_bytes": chunk}), copies[0]), ("write", json!({"file": "a"}), 1)];
        run(&folder.0, 77, &made).unwrap();
        let a = std::fs::read(folder.0.join("a")).unwrap();
        prop_assert_eq!(a.len() as u64, bytes);
        prop_assert!(a.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
        let copied = [("read", json!({"file": "a"}), copies[1]), ("pass", json!({}), copies[2]), ("write", json!({"file": "b"}), 1)];
        run(&folder.0, chunk, &copied).unwrap();
        prop_assert_eq!(folder.names(), ["a", "b"]);
        prop_assert!(std::fs::read(folder.0.join("b")).unwrap() == a);
    }
}

#[test]
fn a_file_replaces_the_file_of_its_name_and_nothing_else() {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join("below")).unwrap();
    std::fs::write(folder.0.join("below/file"), "before").unwrap();
    let to = |file: &str| [("generate", json!({"bytes": "3k"}), 1), ("write", json!({"file": file}), 1)];
    run(&folder.0, 1000, &to("below/file")).unwrap();
    assert_eq!(std::fs::read(folder.0.join("below/file")).unwrap().len(), 3072);
    let told = run(&folder.0, 1000, &to("below")).unwrap_err().to_string();
    assert!(told.contains("cannot write below: there is a directory of that name"), "{told}");
    let told = run(&folder.0, 1000, &to("nowhere/file")).unwrap_err().to_string();
    assert!(told.contains("cannot write nowhere/file") && told.contains("its folder must be there"), "{told}");
    std::os::unix::fs::symlink("/tmp", folder.0.join("out")).unwrap();
    let told = run(&folder.0, 1000, &to("out/file")).unwrap_err().to_string();
    assert!(told.contains("cannot write out/file"), "a link must not lead out: {told}");
}

#[test]
fn errors_name_the_filter_and_the_parameter() {
    let discard = ("discard", Value::Null, 1);
    let generate = ("generate", json!({"bytes": 5000}), 1);
    let with = |kind: &'static str, parameters: Value| failure(&[(kind, parameters, 1), discard.clone()]);
    let after =
        |kind: &'static str, parameters: Value, copies| failure(&[generate.clone(), (kind, parameters, copies)]);
    for (told, parts) in [
        (with("generate", json!({})), ["\"generate\"", "needs the parameter \"bytes\""]),
        (with("generate", json!({"bytes": "many"})), ["\"bytes\" is wrong", "many"]),
        (with("generate", json!({"bytes": 1, "bites": 1})), ["\"bites\" is unknown", "bytes, chunk_bytes"]),
        (with("generate", json!({"bytes": 1, "chunk_bytes": 0})), ["\"chunk_bytes\" is 0", "1 to"]),
        (with("generate", json!([1])), ["\"generate\"", "parameters are [1]"]),
        (with("read", json!({"file": "/etc/passwd"})), ["\"file\", \"/etc/passwd\", is refused", "absolute"]),
        (with("read", json!({"file": "../x"})), ["is refused", "`..`"]),
        (with("read", json!({"file": "x"})), ["cannot read x", "No such file"]),
        (with("read", json!({"file": ""})), ["\"read\"", "\"file\" is empty"]),
        (after("write", json!({"file": "x"}), 2), ["\"write\"", "2 copies, and only one"]),
        (after("write", json!({"file": "a/../../x"}), 1), ["\"write\"", "is refused"]),
        (after("compute", json!({"ns_per_byte": -1.0}), 1), ["\"ns_per_byte\" is -1", "0 or more"]),
        (after("compute", json!({"ns_per_byte": 1, "slow": {"copy": 1, "factor": 4}}), 1), ["copy = 1", "there are 1"]),
        (after("compute", json!({"ns_per_byte": 1, "slow": {"fac": 4}}), 1), ["\"slow\" is wrong", "`fac`"]),
        (after("pass", json!({"x": 1}), 1), ["\"x\" is unknown", "it has none"]),
        (after("pass", json!({}), 1), ["\"pass\"", "no output stream 0"]),
    ] {
        assert!(parts.iter().all(|part| told.contains(part)), "{parts:?} in {told}");
    }
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_left() {
    let folder = Folder::new();
    // SAFETY: system calls with valid strings; the file system is unmounted below.
    let (mount, umount) = unsafe {
        let path = std::ffi::CString::new(folder.0.as_os_str().as_encoded_bytes()).unwrap();
        let mounted = libc::mount(c"none".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=64k".as_ptr().cast());
        (mounted, move || libc::umount2(path.as_ptr(), libc::MNT_DETACH))
    };
    if mount != 0 {
        let error = std::io::Error::last_os_error();
        return skip(Requirement::Tmpfs, format!("cannot mount a tmpfs: {error}"));
    }
    let told = run(&folder.0, 1000, &[("generate", json!({"bytes": "1m"}), 2), ("write", json!({"file": "x"}), 1)]);
    let names = folder.names();
    assert_eq!(umount(), 0);
    let told = told.unwrap_err().to_string();
    assert!(told.contains("\"write\"") && told.contains("cannot write x: No space left"), "{told}");
    assert_eq!(names, [""; 0]);
}

#[test]
fn a_slow_copy_works_longer() {
    let folder = Folder::new();
    let known = Filters::built_in(&folder.0);
    let mut group = Group::new(Config::default());
    group.chunk_bytes(1000);
    group.filter_of_kind("source", "generate", json!({"bytes": 100_000}), &known);
    let slow = json!({"ns_per_byte": 100.0, "slow": {"copy": 1, "factor": 20, "probability": 0.5, "seed": 3}});
    group.filter_of_kind("work", "compute", slow, &known).copies(2);
    let by_turns = StreamOptions::default().schedule(Schedule::RoundRobin);
    group.stream_with("source", "work", by_turns);
    let mut running = group.start().unwrap();
    running.run(b"").unwrap();
    let busy: Vec<_> = running.status().into_iter().filter(|c| c.filter == "work").map(|c| c.counts.busy_ns).collect();
    // 50 buffers of 100 us for each copy, of which some take 2 ms on the second one. This is
    // processor time, to which other load only adds.
    assert!(busy[0] >= 5_000_000 && busy[1] >= 3 * 5_000_000, "{busy:?}");
}
