//! The commands of docs/guide/programs.md that need an sshd, with the real programs.

use super::sshd::{Hosts, program, tree, wait_until};
use super::{Net, passed};
use multirail_testing::{Requirement, skip};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

const GUIDE: &str = include_str!("../../../../docs/guide/programs.md");
const RUN: &str = "```sh no-test-because-tests-of-forward-run-it\n";
const SECTION: &str = "ssh, rsync and git";
/// Long enough for both networks to be used.
const FILE_BYTES: usize = 4 << 20;

/// Runs git without the configuration of the machine and the user.
fn git(folder: &Path, args: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(folder);
    let output = without_configuration(&mut git).output().unwrap();
    passed(&output);
    output
}

fn without_configuration(command: &mut Command) -> &mut Command {
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1")
}

/// Bytes that cannot be compressed, since git compresses.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    })
    .take(FILE_BYTES)
    .collect()
}

#[test]
fn ssh_rsync_and_git_use_both_networks() {
    for name in ["rsync", "git"] {
        if program(name).is_none() {
            return skip(Requirement::Program(name), format!("there is no {name} here"));
        }
    }
    let Some(net) = Net::up("guide", &["100mbit", "100mbit"], &["--allow-forward"]) else { return };
    let address = SocketAddr::from((net.lab.address("h2", 0).unwrap(), 2222));
    let listens = || net.lab.run_in("h1", || TcpStream::connect(address).is_ok()).unwrap();
    let hosts = Hosts::start_at("forward", address, |sshd| net.lab.command("h2", sshd).unwrap(), listens);
    let Some(hosts) = hosts else { return };

    fs::create_dir_all(hosts.near("results/today")).unwrap();
    fs::write(hosts.near("results/today/file"), noise(1)).unwrap();
    git(&hosts.far(""), &["init", "-q", "project"]);
    fs::write(hosts.far("project/file"), noise(2)).unwrap();
    git(&hosts.far("project"), &["add", "file"]);
    git(&hosts.far("project"), &["commit", "-q", "-m", "one"]);

    let section = GUIDE.split("\n## ").find(|text| text.starts_with(SECTION)).expect("the guide has the section");
    let commands = section.split(RUN).nth(1).and_then(|rest| rest.split("```").next()).expect("it has commands");
    let bytes = || [0, 1].map(|rail| ["tx_bytes", "rx_bytes"].map(|name| net.counter(rail, name)));
    let before = bytes();
    let mut shell = net.lab.command("h1", "timeout").unwrap();
    shell.args(["60", "sh"]);
    let mut shell = hosts.shell_of(shell, commands);
    passed(&without_configuration(&mut shell).env("MULTIRAIL_KEYS", super::keys()).output().unwrap());

    assert!(tree(&hosts.near("results")) == tree(&hosts.far("backup/results")));
    let head = |project: &Path| git(project, &["rev-parse", "HEAD"]).stdout;
    assert_eq!(head(&hosts.near("project")), head(&hosts.far("project")));
    git(&hosts.near("project"), &["diff", "--quiet", "HEAD"]);
    assert_eq!(fs::read(hosts.near("project/file")).unwrap(), noise(2));
    // rsync has sent a file, and git has received one.
    for (rail, (before, after)) in before.into_iter().zip(bytes()).enumerate() {
        for (way, (before, after)) in before.into_iter().zip(after).enumerate() {
            assert!(after - before > FILE_BYTES as u64 / 4, "rail {rail}, way {way}: {} bytes", after - before);
        }
    }
    hosts.wait_until_far_is_idle();
    let near = || Command::new("ip").args(["netns", "pids", &net.lab.namespace("h1").unwrap()]).output().unwrap();
    wait_until("nothing runs on h1", || near().stdout.is_empty());
}

/// Every block with the label is in the section that the test above runs.
#[test]
fn every_block_is_run() {
    let labelled = GUIDE.split("\n## ").filter(|text| text.contains(RUN));
    let labelled: Vec<_> = labelled.map(|text| (text.lines().next().unwrap(), text.matches(RUN).count())).collect();
    assert_eq!(labelled, [(SECTION, 1)]);
}
