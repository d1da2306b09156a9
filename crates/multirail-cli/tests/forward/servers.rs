//! `multirail run --cgroup` when servers end and come back.

use super::cgroup::{Cgroup, python, take_over};
use super::{Net, passed};
use std::io::{Read, Write};
use std::process::Stdio;

/// `way()` tells how a new connection to argv[1] goes: `forwarded`, `plain`, or `reset`, if the session is over and the
/// relay has not noticed yet.
const WAY: &str = "
def way():
    try:
        s = socket.create_connection((sys.argv[1], 7000), timeout=60)
        is_forwarded = s.getsockname()[0] == '127.0.0.1'
        s.sendall(b'x')
        assert s.recv(1) == b'x', 'it has ended'
        return 'forwarded' if is_forwarded else 'plain'
    except (ConnectionResetError, BrokenPipeError):
        return 'reset'
def wait_for(expected):
    for _ in range(600):
        if (found := way()) == expected:
            return
        time.sleep(0.1)
    sys.exit(f'{found}, and not {expected}')
";

/// Kills the server that is the child of this number.
fn kill(net: &mut Net, server: usize) {
    net.children[server].kill().unwrap();
    net.children[server].wait().unwrap();
}

#[test]
fn a_lost_session_resets_connections_and_later_ones_go_out_plainly_until_the_server_is_back() {
    let Some(mut net) = Net::up("cgroup-lost", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let Some(cgroup) = Cgroup::new("lost") else { return };
    let address = net.address(0);
    let _stderr = take_over(&mut net, &cgroup, &address);
    let script = "
s = socket.create_connection((sys.argv[1], 7000), timeout=60)
assert s.getsockname()[0] == '127.0.0.1', 'it is forwarded'
s.sendall(b'x')
assert s.recv(1) == b'x'
print('connected', flush=True)
try:
    data = s.recv(1)
    sys.exit(f'no reset: {data}')
except ConnectionResetError:
    pass
wait_for('plain')
assert [way() for _ in range(10)] == ['plain'] * 10
print('plainly  ', flush=True)
sys.stdin.readline()
wait_for('forwarded')
assert [way() for _ in range(10)] == ['forwarded'] * 10
";
    let mut program = python(&net, &cgroup, &format!("{WAY}{script}"), &[&address]);
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for step in ["connected", "plainly  "] {
        let mut said = [0; 10];
        if program.stdout.as_mut().unwrap().read_exact(&mut said).is_err() {
            passed(&program.wait_with_output().unwrap());
            panic!("it did not say {step}");
        }
        match step {
            "connected" => kill(&mut net, 0),
            _ => {
                net.children[0] = net.server(&["--allow-forward"]);
                program.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            }
        }
    }
    passed(&program.wait_with_output().unwrap());
}
