//! `multirail bcast --ticket` and `multirail fetch` as a user runs them.

#[allow(dead_code)]
mod common;

use common::{MULTIRAIL, Place, stderr};
use multirail_lab::{Clusters, Lab};
use multirail_testing::{Requirement, skip};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A cluster is cut off for this long.
const CUT: Duration = Duration::from_secs(30);

/// A broadcast that hosts join.
struct Broadcast {
    process: Child,
    stdout: BufReader<ChildStdout>,
    ticket: String,
}

impl Broadcast {
    fn begin(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let ticket: Value = serde_json::from_str(&line).unwrap();
        Self { process, stdout, ticket: ticket["ticket"].as_str().unwrap().to_owned() }
    }

    /// Ends it as Ctrl-C does; the summary.
    fn end(mut self) -> Value {
        // SAFETY: the process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, libc::SIGINT) }, 0);
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 1000) as u8).collect()
}

#[test]
fn a_ticket_is_all_that_another_host_needs() {
    let place = Place::new("ticket");
    let bytes = content(1_300_001);
    fs::write(place.path("src"), &bytes).unwrap();
    let broadcast = Broadcast::begin(place.multirail(&["--json", "bcast", "src", "--ticket"]));
    for to in ["x", "y"] {
        fs::create_dir(place.path(to)).unwrap();
        let done = place.multirail(&["fetch", &broadcast.ticket, "--to", to]).output().unwrap();
        assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""));
        assert!(String::from_utf8_lossy(&done.stdout).starts_with("complete: 1.2 MiB in "), "{done:?}");
        assert!(fs::read(place.path(to).join("src")).unwrap() == bytes);
    }
    let summary = broadcast.end();
    assert_eq!((summary["failed"].as_u64(), summary["joined"].as_array().unwrap().len()), (Some(0), 2));
    assert!(summary["joined"].as_array().unwrap().iter().all(|host| host["complete"] == true), "{summary}");
}

#[test]
fn a_broadcast_ends_by_itself_after_its_time() {
    let place = Place::new("time");
    fs::write(place.path("src"), content(1000)).unwrap();
    let done = place.multirail(&["bcast", "src", "--ticket", "--seed-for", "1s"]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let lines = String::from_utf8_lossy(&done.stdout).into_owned();
    let ticket = lines.lines().next().unwrap();
    let late = place.multirail(&["fetch", ticket]).output().unwrap();
    assert_eq!(late.status.code(), Some(1));
    assert!(stderr(&late).starts_with("error: the root of the broadcast is not reached at "), "{}", stderr(&late));
    assert!(stderr(&late).contains("hint: check that `multirail bcast --ticket` still runs"), "{}", stderr(&late));
}

#[test]
fn mistakes_in_the_command_line_are_named() {
    let place = Place::new("mistakes");
    fs::write(place.path("src"), content(1000)).unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["fetch", "https://example.org"], 2, "this is no ticket: a ticket begins with `mr1`"),
        (&["fetch", "mr1aaaaaaaa"], 2, "the ticket was altered or is incomplete; copy the whole line again"),
        (&["fetch", "mr1aaaaaaaa", "--seed-for", "soon"], 2, "`soon` is not a time; write for example 90s, 10m or 2h"),
        (&["bcast", "src", "--seed-for", "1s", "--to", "x"], 2, "--ticket"),
        (&["bcast", "src"], 2, "--to"),
        (&["bcast", "src", "--ticket", "--method", "chain"], 1, "hosts join only broadcasts by method adaptive"),
    ];
    for (args, code, why) in cases {
        let done = place.multirail(args).output().unwrap();
        assert_eq!(done.status.code(), Some(code), "{args:?}: {}", stderr(&done));
        assert!(stderr(&done).contains(why), "{args:?}: {}", stderr(&done));
    }
}

/// Two clusters; the second one is cut off while its hosts fetch.
#[test]
fn a_cluster_that_is_cut_off_for_half_a_minute_completes() {
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    let clusters = Clusters::new(&[("a", 2), ("b", 2)]).link_default("40mbit".parse().ok());
    let lab = Lab::temporary(&clusters.link("a-b=10mbit".parse().unwrap()).topology().unwrap()).unwrap();
    let place = Place::new("cut");
    let bytes = content(12_000_000);
    fs::write(place.path("src"), &bytes).unwrap();
    let command = |host: &str, args: &[&str]| {
        let mut command = lab.command(host, MULTIRAIL).unwrap();
        command.args(args).env("MULTIRAIL_KEYS", common::keys()).current_dir(&place.dir);
        command
    };
    let broadcast = Broadcast::begin(command("a0", &["--json", "bcast", "src", "--ticket"]));
    let fetches: Vec<(&str, Child)> = ["a1", "b0", "b1"]
        .iter()
        .map(|host| {
            fs::create_dir(place.path(host)).unwrap();
            let mut fetch = command(host, &["fetch", &broadcast.ticket, "--to", host]);
            (*host, fetch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        })
        .collect();
    // The cut comes while data moves: 12 MB take 10 s.
    let has_begun = || ["b0", "b1"].iter().all(|host| fs::read_dir(place.path(host)).unwrap().count() > 0);
    let until = Instant::now() + Duration::from_secs(20);
    while !has_begun() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(2));
    assert!(!place.path("b0/src").exists(), "the cut comes too late");
    lab.set_cut(0).unwrap();
    std::thread::sleep(CUT);
    lab.set_up(0).unwrap();
    for (host, fetch) in fetches {
        let done = fetch.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{host}: {}", stderr(&done));
        assert!(fs::read(place.path(host).join("src")).unwrap() == bytes, "{host}: other data");
        println!("{host}: {}", String::from_utf8_lossy(&done.stdout).trim_end());
    }
    let summary = broadcast.end();
    let joined = summary["joined"].as_array().unwrap();
    assert_eq!(joined.iter().filter(|host| host["complete"] == true).count(), 3, "{summary}");
}
