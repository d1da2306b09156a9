//! The units of systemd that this repository has.

use multirail_testing::{Requirement, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The units, relative to the root of the repository.
const UNITS: [&str; 5] = [
    "packaging/systemd/multirail.service",
    "packaging/systemd/multirail.socket",
    "packaging/systemd/multirail.slice",
    "packaging/systemd/multirail-run.service",
    "docs/guide/place.service",
];
/// The drop-in for services of others.
const DROP_IN: &str = "packaging/systemd/use-multirail.conf";
const INSTALLED: &str = "/usr/local/bin/multirail";

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("units-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify").env("SYSTEMD_UNIT_PATH", format!("{}:", folder.display()));
    for unit in UNITS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(unit);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!unit.ends_with(".service") || text.contains(INSTALLED), "{unit}");
        // The program need not be installed where the test runs.
        let copy = folder.join(path.file_name().unwrap());
        fs::write(&copy, text.replace(INSTALLED, env!("CARGO_BIN_EXE_multirail"))).unwrap();
        verify.arg(copy);
    }
    // A service of another program, with the drop-in.
    fs::create_dir(folder.join("app.service.d")).unwrap();
    let drop_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DROP_IN);
    fs::copy(drop_in, folder.join("app.service.d/use-multirail.conf")).unwrap();
    fs::write(folder.join("app.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    verify.arg(folder.join("app.service"));
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

/// The options in the units are those of their commands.
#[test]
fn the_units_start_commands_with_options_that_exist() {
    let [(server, start), _] =
        [("multirail.service", "serve"), ("multirail-run.service", "run")].map(|(unit, command)| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd").join(unit);
            let unit = fs::read_to_string(path).unwrap();
            let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
            let start = start.strip_prefix(&format!("{INSTALLED} {command} ")).unwrap().to_owned();
            let help = Command::new(env!("CARGO_BIN_EXE_multirail")).args([command, "--help"]).output().unwrap();
            let help = String::from_utf8(help.stdout).unwrap();
            for option in start.split(' ').filter(|word| word.starts_with("--")) {
                assert!(help.contains(&format!("{option} ")), "{option} in {help}");
            }
            (unit, start)
        });
    let drain: u64 = start.split("--drain ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit: u64 = server.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap().parse().unwrap();
    assert!(drain < limit, "systemd kills the server before requests have had their time");
}
