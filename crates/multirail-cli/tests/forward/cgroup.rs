//! `multirail run --cgroup`.

use super::{Net, common, passed, stderr};
use multirail_testing::{Requirement, skip};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};

/// Python: sends through a connection to the program on the server's side, and gets the same back.
pub const TALK: &str = "
def talk(s):
    s.setblocking(True)
    s.settimeout(20)
    s.sendall(b'through')
    s.shutdown(socket.SHUT_WR)
    got = b''
    while data := s.recv(100):
        got += data
    assert got == b'through', got
";

/// A cgroup of the test, removed with this value.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`, and the test is skipped, where none can be made.
    pub fn new(name: &str) -> Option<Self> {
        let made = Self::make(name);
        if made.is_none() {
            skip(Requirement::Cgroup2, "no cgroup of version 2 can be made");
        }
        made
    }

    fn make(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mounted = mounts.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, folder, "cgroup2", ..] => Some(folder.to_owned()),
            _ => None,
        });
        let folder = Path::new(&mounted?).join(format!("multirail-test-{name}-{}", std::process::id()));
        fs::create_dir(&folder).ok().map(|()| Self(folder))
    }

    /// The folder as hosts of a lab see it, which have mounts of their own.
    fn path(&self) -> String {
        format!("/proc/{}/root{}", std::process::id(), self.0.display())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Where a test has failed, some may still run.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        // Processes that have ended may be in it for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Starts the relay with these servers, and waits until it has taken over the cgroup. Returns its stderr.
pub fn take_over(net: &mut Net, cgroup: &Cgroup, peers: &str) -> ChildStderr {
    let mut run = net.command("h1", &["run", "--token-file", "token", "--peers", peers, "--cgroup"]);
    let run = run.arg(cgroup.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let (stdout, stderr) = (run.stdout.take().unwrap(), run.stderr.take().unwrap());
    net.children.push(run);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(line.starts_with("taking over connections of "), "{line}");
    stderr
}

/// A Python script on `h1`, in the cgroup.
pub fn python(net: &Net, cgroup: &Cgroup, script: &str, args: &[&str]) -> Command {
    let mut shell = net.lab.command("h1", "sh").unwrap();
    shell.args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec python3 -c \"$@\"", &cgroup.path()]);
    shell.arg(format!("import os, socket, sys, threading, time\n{script}")).args(args);
    shell
}

#[test]
fn connections_of_a_cgroup_are_taken_over_while_the_command_runs() {
    let Some(mut net) = Net::up("cgroup", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let Some(cgroup) = Cgroup::new("runs") else { return };
    let address = net.address(0);
    let is_taken_over = "
for _ in range(50):
    s = socket.create_connection((sys.argv[1], 7000))
    assert s.getsockname()[0] == '127.0.0.1', s.getsockname()
    assert s.getpeername() == (sys.argv[1], 7000), s.getpeername()
    talk(s)
# As a program does that knows IPv6 alone.
s = socket.socket(socket.AF_INET6)
s.connect(('::ffff:' + sys.argv[1], 7000))
assert s.getpeername()[:2] == ('::ffff:' + sys.argv[1], 7000), s.getpeername()
talk(s)
# Loopback is left alone.
listener = socket.create_server(('127.0.0.1', 0))
local = socket.create_connection(listener.getsockname())
assert local.getpeername() == listener.getsockname()
# A target that refuses resets the connection.
s = socket.create_connection((sys.argv[1], 9))
try:
    data = s.recv(1)
    sys.exit(f'no reset: {data}')
except ConnectionResetError:
    pass
";
    let is_plain = "
s = socket.create_connection((sys.argv[1], 7000))
assert s.getsockname()[0] != '127.0.0.1', s.getsockname()
assert s.getpeername() == (sys.argv[1], 7000)
";
    passed(&python(&net, &cgroup, is_plain, &[&address]).output().unwrap());
    let _stderr = take_over(&mut net, &cgroup, &address);
    passed(&python(&net, &cgroup, &[TALK, is_taken_over].concat(), &[&address]).output().unwrap());
    // Other processes are left alone.
    let mut outside = net.lab.command("h1", "python3").unwrap();
    passed(&outside.arg("-c").arg(format!("import socket, sys\n{is_plain}")).arg(&address).output().unwrap());
    let mut run = net.children.pop().unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    passed(&python(&net, &cgroup, is_plain, &[&address]).output().unwrap());
}

#[test]
fn what_is_no_cgroup_of_other_processes_is_refused() {
    let refused = |folder: &str| {
        let output = common::multirail().args(["run", "--peers", "127.0.0.1", "--cgroup", folder]).output().unwrap();
        assert!(!output.status.success());
        stderr(&output)
    };
    assert!(refused("/no/such/folder").contains("No such file"));
    assert!(refused("/").contains("is not a cgroup of version 2"));
    let own = common::multirail().args(["run", "--cgroup", "/"]).output().unwrap();
    assert!(stderr(&own).contains("--peers"), "{}", stderr(&own));
}
