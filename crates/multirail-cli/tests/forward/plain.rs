//! Connections that go out as they were, though their host has a server.

use super::cgroup::{Cgroup, TALK, python, take_over};
use super::{Net, common, passed, stderr};
use multirail_lab::Topology;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

#[test]
fn a_port_that_is_not_allowed_is_reached_plainly_also_when_the_answer_comes_late() {
    let text = "[[host]]\nname='h1'\n[[host]]\nname='h2'\n[[rail]]\nrate='100mbit'\ndelay='40ms'\n";
    let topology = Topology::from_toml(text).unwrap();
    let Some(mut net) = Net::on("late", &topology, &["--allow-forward=own:7000"]) else { return };
    let address = net.address(0);
    net.echo(&address, "7002");
    let script = format!(
        "{TALK}
# The session is made before.
socket.create_connection((sys.argv[1], 7000)).close()
s = socket.socket()
s.setblocking(False)
assert s.connect_ex((sys.argv[1], 7002)) == errno.EINPROGRESS
assert select.select([], [s], [], 20)[1], 'it waits for ever'
error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
if error:
    sys.exit(errno.errorcode[error])
talk(s)
"
    );
    let output = net.python(&[], &script, &[&address]);
    passed(&output);
    assert!(stderr(&output).contains("does not forward to"), "{}", stderr(&output));
    let required = net.python(&["--require"], &script, &[&address]);
    assert!(stderr(&required).contains("ECONNREFUSED"), "{}", stderr(&required));
}

#[test]
fn a_port_that_is_not_allowed_is_reached_plainly_from_a_cgroup() {
    let Some(mut net) = Net::up("not-allowed", &["1gbit", "1gbit"], &["--allow-forward=own:7000"]) else { return };
    let Some(cgroup) = Cgroup::new("not-allowed") else { return };
    let address = net.address(0);
    net.echo(&address, "7002");
    let _stderr = take_over(&mut net, &cgroup, &address);
    let script =
        format!("{TALK}\nfor port in (7000, 7002):\n    talk(socket.create_connection((sys.argv[1], port)))\n");
    passed(&python(&net, &cgroup, &script, &[&address]).output().unwrap());
}

#[test]
fn a_socket_of_an_interface_goes_out_plainly() {
    let Some(net) = Net::up("bound", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let script = "
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[2].encode())
s.connect((sys.argv[1], 7000))
assert s.getsockname()[0] != '127.0.0.1', s.getsockname()
";
    let device = net.lab.port(0).unwrap();
    let output = net.python(&[], script, &[&net.address(0), &device]);
    passed(&output);
    assert!(stderr(&output).contains("bound to a network interface"), "{}", stderr(&output));
    assert!(!net.python(&["--require"], script, &[&net.address(0), &device]).status.success());
}

/// `multirail run` is told to end while a child of its program goes on.
#[test]
fn what_outlives_multirail_run_goes_on_plainly() {
    let Some(net) = Net::up("outlives", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let child = "
import os, socket, sys, time
while os.getppid() != int(sys.argv[2]):
    time.sleep(0.01)
print('started', flush=True)
while os.getppid() == int(sys.argv[2]):
    time.sleep(0.01)
s = socket.create_connection((sys.argv[1], 7000))
print(s.getsockname()[0] != '127.0.0.1', s.getpeername()[1], flush=True)
";
    // The supervisor is the parent of what its program leaves.
    let shell = "python3 -c \"$1\" \"$2\" $PPID & exit 0";
    let mut run = net.command("h1", &["run", "--token-file", "token", "--", "sh", "-c", shell, "sh", child]);
    let mut run = run.arg(net.address(0)).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    // The first signal may still be for the shell.
    while run.try_wait().unwrap().is_none() {
        // SAFETY: the process has not been waited for, so the number is still its own.
        unsafe { nix::libc::kill(run.id() as i32, nix::libc::SIGTERM) };
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    line.clear();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "True 7000\n");
}

#[test]
fn children_that_the_program_leaves_are_waited_for_while_it_runs() {
    let script = "
import os, subprocess, time
subprocess.run(['sh', '-c', 'sleep 0.1 &'])
def zombies():
    stats = [open(f'/proc/{pid}/stat').read() for pid in os.listdir('/proc') if pid.isdigit() and os.path.exists(f'/proc/{pid}/stat')]
    fields = [stat.rsplit(')', 1)[1].split() for stat in stats]
    return [f for f in fields if f[0] == 'Z' and int(f[1]) == os.getppid()]
time.sleep(0.3)
for _ in range(100):
    if not zombies():
        break
    time.sleep(0.1)
else:
    raise SystemExit('a zombie is left')
";
    passed(&common::multirail().args(["run", "--", "python3", "-c", script]).output().unwrap());
}

#[test]
fn stdout_ends_when_the_target_has_ended_though_stdin_goes_on() {
    let Some(mut net) = Net::up("ends", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let server = "
import socket
listener = socket.create_server(('0.0.0.0', 7003))
print('ready', flush=True)
s, _ = listener.accept()
s.sendall(b'bye')
s.shutdown(socket.SHUT_WR)
assert s.recv(100) == b''
";
    let mut python = net.lab.command("h2", "python3").unwrap();
    let mut target = python.args(["-c", server]).stdout(Stdio::piped()).spawn().unwrap();
    target.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    net.children.push(target);
    let mut connect = net.command("h1", &["connect", &net.address(0), "7003", "--token-file", "token"]);
    let mut connect = connect.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut got = Vec::new();
    connect.stdout.as_mut().unwrap().read_to_end(&mut got).unwrap();
    assert_eq!(got, b"bye");
    assert!(connect.try_wait().unwrap().is_none(), "stdin has not ended");
    drop(connect.stdin.take());
    assert!(connect.wait().unwrap().success());
}
