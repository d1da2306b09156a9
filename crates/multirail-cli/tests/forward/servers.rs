//! `multirail run --cgroup` when servers end and come back.

use super::cgroup::{Cgroup, python, take_over};
use super::{Net, passed};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// What takes seconds, also where other programs use the processors.
const GENEROUS: Duration = Duration::from_secs(60);

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

/// What the relay says of servers, on stderr.
struct Reports(mpsc::Receiver<String>);

impl Reports {
    fn of(stderr: ChildStderr) -> Self {
        let (sender, lines) = mpsc::channel();
        // It ends with the relay.
        std::thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self(lines)
    }

    fn wait_for(&self, expected: &str) {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|line: &String| !line.contains(expected)) {
            match self.0.recv_timeout(GENEROUS) {
                Ok(line) => seen.push(line),
                Err(error) => panic!("no report of {expected}: {error}; {seen:?}"),
            }
        }
    }

    fn wait_until_over(&self, host: &str) {
        self.wait_for(&format!("the session with {host} is over"));
    }
}

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

#[test]
fn an_address_of_two_servers_is_redirected_as_long_as_one_has_a_session() {
    let Some(mut net) = Net::up("cgroup-two", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let Some(cgroup) = Cgroup::new("two") else { return };
    let other = net.server(&["--allow-forward", "--listen", "[::]:7718"]);
    net.children.push(other);
    let (first, second, other) = (0, net.children.len() - 1, net.address(0));
    let [first_host, second_host] = [7717, 7718].map(|port| format!("{other}:{port}"));
    let reports = Reports::of(take_over(&mut net, &cgroup, &format!("{first_host},{second_host}")));
    let goes = |net: &Net, expected: &str| {
        let script = format!("{WAY}found = way()\nassert found == '{expected}', found");
        passed(&python(net, &cgroup, &script, &[&net.address(0)]).output().unwrap());
    };
    goes(&net, "forwarded");
    // The one whose session was made first ends, and the one whose session was made last, in either order.
    kill(&mut net, first);
    reports.wait_until_over(&first_host);
    goes(&net, "forwarded");
    net.children[first] = net.server(&["--allow-forward"]);
    reports.wait_for(&format!("connections to {first_host} use all networks"));
    goes(&net, "forwarded");
    kill(&mut net, first);
    reports.wait_until_over(&first_host);
    goes(&net, "forwarded");
    kill(&mut net, second);
    reports.wait_until_over(&second_host);
    goes(&net, "plain");
}
