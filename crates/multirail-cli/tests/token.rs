//! `multirail token`, and the token files that commands refuse.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Place, stderr};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

/// The output of a client whose server does not matter.
fn client(place: &Place) -> Output {
    place.multirail(&["--json", "rails", "127.0.0.1:1", "--token-file", "token"]).output().unwrap()
}

#[test]
fn a_new_token_is_printed_as_a_path_and_joins_two_hosts() {
    let mut place = Place::new("new");
    let created = place.multirail(&["token", "token"]).output().unwrap();
    assert_eq!((created.status.code(), stderr(&created).as_str()), (Some(0), ""));
    let path = place.path("token").canonicalize().unwrap();
    assert_eq!(String::from_utf8_lossy(&created.stdout), format!("a new token is in {}\n", path.display()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let secret = fs::read(&path).unwrap();
    let again = place.multirail(&["--json", "token", "token"]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("File exists") && stderr(&again).contains("\"hint\""), "{}", stderr(&again));
    assert_eq!(fs::read(&path).unwrap(), secret);

    let address = place.serve("root", &["--token-file", "token"]);
    let upload = ["cp", "--token-file", "token", "token", &format!("mr://{address}/copy")];
    let copied = place.multirail(&upload).output().unwrap();
    assert!(copied.status.success(), "{}", stderr(&copied));
}

#[test]
fn a_name_that_is_no_file_is_exit_code_2() {
    let place = Place::new("names");
    for name in ["-", ""] {
        assert_eq!(place.multirail(&["token", name]).output().unwrap().status.code(), Some(2), "{name:?}");
    }
}

#[test]
fn a_file_that_others_can_read_is_refused_with_what_to_do() {
    let place = Place::new("shared");
    place.token();
    let reached = client(&place);
    assert!(stderr(&reached).contains("cannot reach"), "{}", stderr(&reached));
    fs::set_permissions(place.path("token"), Permissions::from_mode(0o644)).unwrap();
    let refused = client(&place);
    assert_eq!(refused.status.code(), Some(1));
    let error: serde_json::Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert!(error["error"].as_str().unwrap().starts_with("token file token: its mode is 0644"), "{error}");
    assert_eq!(error["hint"], "chmod 600 token");
    let serve = place.multirail(&["serve", "--listen", "127.0.0.1:0", "--token-file", "token"]).output().unwrap();
    assert_eq!(serve.status.code(), Some(1));
    assert!(stderr(&serve).contains("hint: chmod 600 token\n"), "{}", stderr(&serve));
}

#[test]
fn a_short_token_is_refused() {
    let place = Place::new("short");
    place.write("token", "summer2024\n");
    fs::set_permissions(place.path("token"), Permissions::from_mode(0o600)).unwrap();
    let refused = client(&place);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("it has 10 characters, and at least 22"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("multirail token FILE"), "{}", stderr(&refused));
}
