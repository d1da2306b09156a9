//! The commands of docs/guide/ssh.md.

use super::sshd::{Hosts, stderr, tree};
use std::fs;

#[test]
fn the_commands_of_the_guide_run() {
    let Some(hosts) = Hosts::start("guide") else { return };
    let guide = include_str!("../../../../docs/guide/ssh.md");
    let mut blocks = guide.split("```sh no-test-because-tests-of-ssh-run-it\n").skip(1);
    let commands: String = blocks.by_ref().filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(guide.matches("```sh").count(), guide.matches("```sh no-test-because-tests-of-ssh-run-it").count());
    fs::create_dir_all(hosts.near("results/today")).unwrap();
    fs::write(hosts.near("results/today/file"), "x").unwrap();
    let output = hosts.shell(&commands).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(tree(&hosts.near("results")) == tree(&hosts.far("backup/results")));
    assert_eq!(fs::read(hosts.near("file")).unwrap(), b"x");
    assert_eq!(fs::read(hosts.far("lent")).unwrap(), b"x");
    hosts.wait_until_far_is_idle();
}
