//! `multirail pair`: first contact of two hosts, by two commands with keys of their own.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Place, stderr};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output, Stdio};

/// A command that offers to pair, and what it shows.
struct Offer {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    code: String,
    address: String,
}

impl Offer {
    fn start(place: &Place, options: &[&str]) -> Self {
        let mut command = place.multirail(&["--json", "pair", "--keys", "server", "--listen", "127.0.0.1:0"]);
        let command = command.args(options).env("MULTIRAIL_LOG", "trace");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let shown: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| shown[name].as_str().unwrap().to_owned();
        Self { code: text("code"), address: text("listening"), child, out }
    }

    /// What it printed on stderr until its end, and whether it succeeded.
    fn end(mut self) -> (bool, String) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.out, &mut rest).unwrap();
        let output = self.child.wait_with_output().unwrap();
        assert!(!stderr(&output).contains(&self.code) && !rest.contains(&self.code), "the code is in the log");
        (output.status.success(), stderr(&output))
    }
}

/// Pairs, and types the code.
fn pair(place: &Place, host: &str, code: &str) -> Output {
    let mut command = place.multirail(&["pair", host, "--keys", "client"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{code}").unwrap();
    child.wait_with_output().unwrap()
}

fn is_kept(place: &Place) -> bool {
    place.path("server/authorized_keys").exists() || place.path("client/known_hosts").exists()
}

#[test]
fn hosts_that_were_paired_copy_without_a_token() {
    let mut place = Place::new("pairs");
    place.write("file", "content");
    // The server runs before, and finds the key by itself.
    let address = place.serve("root", &["--keys", "server"]);
    fs::create_dir_all(place.path("root/in")).unwrap();
    let to = format!("mr://{address}/");
    let copy = |place: &Place| place.multirail(&["cp", "file", &to, "--keys", "client"]).output().unwrap();
    assert!(!copy(&place).status.success());
    let offer = Offer::start(&place, &["--options", "root=in,quota=1m"]);
    assert_eq!(offer.code.split('-').count(), 3, "{}", offer.code);
    let paired = pair(&place, &offer.address, &offer.code.replace('-', " ").to_uppercase());
    assert!(paired.status.success(), "{}", stderr(&paired));
    let (ended_well, told) = offer.end();
    assert!(ended_well, "{told}");
    for name in ["server/authorized_keys", "client/known_hosts"] {
        assert_eq!(fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o7777, 0o600, "{name}");
    }
    let lines = fs::read_to_string(place.path("server/authorized_keys")).unwrap();
    assert!(lines.starts_with("root=in,quota=1m ed25519:") && lines.contains('@'), "{lines}");
    let copied = copy(&place);
    assert!(copied.status.success(), "{}", stderr(&copied));
    assert_eq!(fs::read_to_string(place.path("root/in/file")).unwrap(), "content");
    // A key has one line, so its options are not widened by the way.
    let offer = Offer::start(&place, &[]);
    let again = pair(&place, &offer.address, &offer.code);
    assert!(!again.status.success() && stderr(&again).contains("has a line for the key"), "{}", stderr(&again));
    assert!(!offer.end().0);
    assert_eq!(fs::read_to_string(place.path("server/authorized_keys")).unwrap(), lines);
}

#[test]
fn a_wrong_code_ends_the_offer_and_nothing_is_kept() {
    let place = Place::new("wrong");
    let offer = Offer::start(&place, &[]);
    let wrong = pair(&place, &offer.address, "wrong-wrong-wrong");
    assert!(!wrong.status.success() && stderr(&wrong).contains("the code is wrong"), "{}", stderr(&wrong));
    let (ended_well, told) = offer.end();
    assert!(!ended_well && told.contains("the code is wrong"), "{told}");
    assert!(!is_kept(&place));
}

/// Somebody in between answers the client with a guess, and the server with another one.
#[test]
fn who_is_in_between_pairs_with_neither_side() {
    let place = Place::new("between");
    let real = Offer::start(&place, &[]);
    let mut fake = place.multirail(&["--json", "pair", "--keys", "between", "--listen", "127.0.0.1:0"]);
    let mut fake = fake.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let address = common::listening(&mut fake);
    let near = pair(&place, &address, &real.code);
    assert!(!near.status.success() && stderr(&near).contains("somebody intercepts"), "{}", stderr(&near));
    let far = place.multirail(&["pair", &real.address, "a-guess", "--keys", "between"]).output().unwrap();
    assert!(!far.status.success());
    assert!(!real.end().0 && !fake.wait().unwrap().success());
    assert!(!is_kept(&place) && !place.path("between/authorized_keys").exists());
}

#[test]
fn an_offer_that_nobody_takes_ends() {
    let place = Place::new("alone");
    let (ended_well, told) = Offer::start(&place, &["--wait", "1"]).end();
    assert!(!ended_well && told.contains("no client came within 1 s"), "{told}");
    assert!(!is_kept(&place));
}

#[test]
fn a_host_that_has_another_key_is_not_paired() {
    let place = Place::new("changed");
    let other = place.multirail(&["id", "--keys", "other"]).output().unwrap();
    fs::create_dir_all(place.path("client")).unwrap();
    let known = format!("127.0.0.1 {}", String::from_utf8_lossy(&other.stdout));
    place.write("client/known_hosts", &known);
    let mut offer = Offer::start(&place, &[]);
    let refused = pair(&place, &offer.address, &offer.code);
    assert!(!refused.status.success() && stderr(&refused).contains("has changed"), "{}", stderr(&refused));
    // The code was not used, and the offer goes on.
    assert!(offer.child.try_wait().unwrap().is_none());
    offer.child.kill().unwrap();
    offer.end();
    assert!(!place.path("server/authorized_keys").exists());
    assert_eq!(fs::read_to_string(place.path("client/known_hosts")).unwrap(), known);
}

#[test]
fn bad_options_are_refused_before_a_code_is_shown() {
    let place = Place::new("options");
    let bad = place.multirail(&["pair", "--keys", "server", "--options", "rw"]).output().unwrap();
    assert!(!bad.status.success() && bad.stdout.is_empty(), "{}", stderr(&bad));
    assert!(stderr(&bad).contains("--options: `rw` is no option; the options are root=DIR"), "{}", stderr(&bad));
}
