//! The units of systemd that this repository has.

use multirail_testing::{Requirement, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The units, relative to the root of the repository.
const UNITS: [&str; 3] =
    ["packaging/systemd/multirail.service", "packaging/systemd/multirail.socket", "docs/guide/place.service"];
const INSTALLED: &str = "/usr/local/bin/multirail";

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("units-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    for unit in UNITS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(unit);
        let text = fs::read_to_string(&path).unwrap();
        assert!(unit.ends_with(".socket") || text.contains(INSTALLED), "{unit}");
        // The program need not be installed where the test runs.
        let copy = folder.join(path.file_name().unwrap());
        fs::write(&copy, text.replace(INSTALLED, env!("CARGO_BIN_EXE_multirail"))).unwrap();
        verify.arg(copy);
    }
    let verified = verify.output();
    fs::remove_dir_all(&folder).unwrap();
    match verified {
        Err(_) => skip(Requirement::SystemdAnalyze, "there is no systemd-analyze here"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.is_empty(), "{text}");
        }
    }
}

/// The options in the unit are those of the command.
#[test]
fn the_unit_starts_a_server_with_options_that_exist() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/multirail.service");
    let unit = fs::read_to_string(unit).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let start = start.strip_prefix(INSTALLED).unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_multirail")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for option in start.split(' ').filter(|word| word.starts_with("--")) {
        assert!(help.contains(&format!("{option} ")), "{option} in {help}");
    }
    let drain: u64 = start.split("--drain ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit: u64 = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap().parse().unwrap();
    assert!(drain < limit, "systemd kills the server before requests have had their time");
}
