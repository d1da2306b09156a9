//! The commands of docs/guide/services.md, with the real programs.

use multirail_lab::Lab;
use multirail_testing::{Requirement, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const GUIDE: &str = include_str!("../../../docs/guide/services.md");
const RUN: &str = "```sh no-test-because-tests-of-services-run-it\n";
/// The section that makes the lab in which the others run.
const LAB: &str = "Services of systemd";

/// What ends with the script, also when it fails: all processes of the lab, and the lab.
const PRELUDE: &str = r#"
set -euo pipefail
end() {
    for host in a b; do
        ip netns pids "mrlab-$LAB-$host" | xargs -r kill -9 2>/dev/null || true
    done
    multirail lab down --name "$LAB"
}
trap end EXIT
ready() {
    for _ in {1..200}; do
        multirail lab exec --name "$LAB" "$1" -- bash -c '</dev/tcp/127.0.0.1/7717' 2>/dev/null && return
        sleep 0.05
    done
    return 1
}
set -x
"#;

/// The commands of a section that are run.
fn commands(section: &str) -> String {
    let text = GUIDE.split("\n## ").find(|text| text.starts_with(section)).expect("the guide has the section");
    let blocks = text.split(RUN).skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.collect::<Vec<_>>().join("\n")
}

/// Runs the commands of a section, if its programs are here.
fn run(section: &str, programs: &[&'static str]) {
    let path = std::env::var("PATH").unwrap_or_default();
    let multirail = Path::new(env!("CARGO_BIN_EXE_multirail"));
    let path = format!("{}:{path}:/usr/sbin:/sbin", multirail.parent().unwrap().display());
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    // Debian keeps servers of PostgreSQL in a folder for each version.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.unwrap().path().join("bin")).collect();
    folders.extend(path.split(':').map(PathBuf::from));
    for program in programs {
        if !folders.iter().any(|folder| folder.join(program).exists()) {
            return skip(Requirement::Program(program), format!("there is no {program} here"));
        }
    }
    let lab = format!("{}{}", &programs[0][..2], std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("services-{lab}"));
    fs::create_dir_all(&folder).unwrap();
    let serve_b = format!("{}\nready b\n", commands(LAB));
    let section = commands(section);
    assert!(!section.is_empty());
    let script = format!("LAB={lab}\n{PRELUDE}{serve_b}{section}").replace("--name guide", &format!("--name {lab}"));
    let output = Command::new("timeout")
        .args(["60", "bash", "-c", &script])
        .current_dir(&folder)
        .env("PATH", &path)
        .env("MULTIRAIL_KEYS", folder.join("keys"))
        .output()
        .unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}\n{stdout}{stderr}", output.status);
    // Otherwise the example would do the same without multirail.
    assert!(!stderr.contains("multirail: "), "a connection went out plainly:\n{stderr}");
}

#[test]
fn postgresql_replicates() {
    run("PostgreSQL", &["postgres", "runuser"]);
}

#[test]
fn redis_replicates() {
    run("Redis", &["redis-server", "redis-cli"]);
}

#[test]
fn rclone_copies() {
    run("rclone", &["rclone"]);
}

#[test]
fn open_mpi_exchanges() {
    run("MPI", &["mpirun.openmpi", "mpicc.openmpi", "unshare"]);
}

/// Every block is run by one of the tests above, or says why not.
#[test]
fn every_section_is_run() {
    let sections = GUIDE.split("\n## ").filter(|text| text.contains(RUN)).map(|text| text.lines().next().unwrap());
    let sections: Vec<_> = sections.map(|title| title.split(':').next().unwrap()).collect();
    assert_eq!(sections, [LAB, "PostgreSQL", "Redis", "rclone", "MPI"]);
}
