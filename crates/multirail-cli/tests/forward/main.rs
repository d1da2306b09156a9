//! Connections of programs that know nothing of multirail, through a session between two hosts of a lab.

mod cgroup;
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
mod failures;
mod guide;
mod plain;
mod servers;
mod socks;
#[allow(dead_code)]
#[path = "../ssh/sshd.rs"]
mod sshd;
mod v6;

use common::{MULTIRAIL, Place, keys, listening, stderr};
use multirail_lab::{Lab, Topology};
use multirail_testing::{Requirement, skip};
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program on the server's side: it sends back what it reads, one connection at a time in a thread
/// each, and says on stdout where it listens.
const ECHO: &str = "
import socket, socketserver, sys, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.shutdown(socket.SHUT_WR)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 1000
    address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
with Server((sys.argv[1], int(sys.argv[2])), Echo) as server:
    print('ready', flush=True)
    server.serve_forever()
";

/// Two hosts with two rails, a server on `h2` that forwards to its own addresses, and a program there.
struct Net {
    // Dropped before the lab, so that no process is left in it.
    children: Vec<Child>,
    lab: Lab,
    place: Place,
}

impl Net {
    fn up(name: &str, rails: &[&str], serve: &[&str]) -> Option<Self> {
        Self::on(name, &Topology::simple(&["h1", "h2"], rails).unwrap(), serve)
    }

    fn on(name: &str, topology: &Topology, serve: &[&str]) -> Option<Self> {
        if let Err(why) = Lab::supported() {
            skip(Requirement::Namespaces, why.to_string());
            return None;
        }
        let lab = Lab::temporary(topology).unwrap();
        let mut net = Self { children: Vec::new(), lab, place: Place::new(name) };
        net.place.token();
        let server = net.server(serve);
        net.children.push(server);
        let address = net.address(0);
        net.echo(&address, "7000");
        Some(net)
    }

    /// Starts a server on `h2`, which is the first child.
    fn server(&self, options: &[&str]) -> Child {
        let mut server = self.command("h2", &["--json", "serve", "--token-file", "token"]);
        let mut server = server.args(options).stdout(Stdio::piped()).spawn().unwrap();
        listening(&mut server);
        server
    }

    /// Starts the program on `h2`.
    fn echo(&mut self, address: &str, port: &str) {
        self.echo_on("h2", address, port);
    }

    fn echo_on(&mut self, host: &str, address: &str, port: &str) {
        let mut python = self.lab.command(host, "python3").unwrap();
        let mut child = python.args(["-c", ECHO, address, port]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        self.children.push(child);
    }

    fn address(&self, rail: usize) -> String {
        self.lab.address("h2", rail).unwrap().to_string()
    }

    fn command(&self, host: &str, args: &[&str]) -> Command {
        let mut command = self.lab.command(host, MULTIRAIL).unwrap();
        command.args(args).current_dir(&self.place.dir).env("MULTIRAIL_KEYS", keys());
        command
    }

    /// Runs a Python script on `h1` under `multirail run`.
    fn python(&self, options: &[&str], script: &str, args: &[&str]) -> Output {
        let mut run = self.command("h1", &["run", "--token-file", "token"]);
        let common = "import errno, os, select, socket, sys, threading\n";
        run.args(options).args(["--", "python3", "-c"]).arg(format!("{common}{script}")).args(args).output().unwrap()
    }

    /// How many bytes have left `h1` on a rail.
    fn sent_bytes(&self, rail: usize) -> u64 {
        self.counter(rail, "tx_bytes")
    }

    fn counter(&self, rail: usize, name: &str) -> u64 {
        let file = format!("/sys/class/net/{}/statistics/{name}", self.lab.port(rail).unwrap());
        let read = self.lab.command("h1", "cat").unwrap().arg(file).output().unwrap();
        String::from_utf8(read.stdout).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn passed(output: &Output) {
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), stderr(output));
}

#[test]
fn a_programs_connection_uses_both_rails_and_ends_as_usual() {
    let Some(net) = Net::up("both", &["100mbit", "100mbit"], &["--allow-forward"]) else { return };
    let before = [net.sent_bytes(0), net.sent_bytes(1)];
    let script = "
address = (sys.argv[1], 7000)
s = socket.create_connection(address)
assert s.getpeername() == address, s.getpeername()
sent = os.urandom(8 << 20)
got = bytearray()
def read():
    while data := s.recv(1 << 16):
        got.extend(data)
reader = threading.Thread(target=read)
reader.start()
s.sendall(sent)
s.shutdown(socket.SHUT_WR)
reader.join()
assert bytes(got) == sent, len(got)
";
    passed(&net.python(&[], script, &[&net.address(0)]));
    for (rail, before) in before.into_iter().enumerate() {
        let sent = net.sent_bytes(rail) - before;
        assert!(sent > 2 << 20, "rail {rail} carried {sent} bytes of 8 MiB");
    }
}

#[test]
fn errors_are_those_of_the_system() {
    let Some(net) = Net::up("errors", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let script = "
a = sys.argv[1]
def error_of(call):
    try:
        call()
    except OSError as e:
        return errno.errorcode[e.errno]
    return 'none'
def fresh():
    return socket.socket()
# Nothing listens there.
assert error_of(lambda: fresh().connect((a, 9))) == 'ECONNREFUSED'
n = fresh()
n.setblocking(False)
first = error_of(lambda: n.connect((a, 9)))
if first == 'EINPROGRESS':
    select.select([], [n], [], 10)
    first = errno.errorcode[n.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]
assert first == 'ECONNREFUSED', first
# A bad pointer, a wrong length, a descriptor that is no socket, and one that is closed.
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def raw(fd, pointer, length):
    assert libc.connect(fd, ctypes.c_void_p(pointer), length) == -1
    return errno.errorcode[ctypes.get_errno()]
s = fresh()
assert raw(s.fileno(), 8, 16) == 'EFAULT'
assert raw(s.fileno(), 8, 2) in ('EFAULT', 'EINVAL')
assert raw(0, 8, 16) in ('EFAULT', 'ENOTSOCK')
assert raw(999, 8, 16) in ('EFAULT', 'EBADF')
# Twice.
s.connect((a, 7000))
assert error_of(lambda: s.connect((a, 7000))) == 'EISCONN'
";
    passed(&net.python(&[], script, &[&net.address(0)]));
}

#[test]
fn a_non_blocking_connect_returns_before_a_slow_target_answers() {
    let text = "[[host]]\nname='h1'\n[[host]]\nname='h2'\n[[rail]]\nrate='100mbit'\ndelay='40ms'\n";
    let topology = Topology::from_toml(text).unwrap();
    let Some(net) = Net::on("slow", &topology, &["--allow-forward"]) else { return };
    let script = "
a = sys.argv[1]
# The session is made before.
socket.create_connection((a, 7000)).close()
def begin(port):
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex((a, port)) == errno.EINPROGRESS
    assert s.connect_ex((a, port)) in (errno.EALREADY, 0)
    return s
def end(s):
    assert select.select([], [s], [], 20)[1], 'it waits for ever'
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
ones = [begin(7000) for _ in range(20)]
for s in ones:
    assert end(s) == 0
    assert s.getpeername() == (a, 7000), s.getpeername()
    assert s.getsockname()[0] == '127.0.0.1', 'it is forwarded'
    s.setblocking(True)
    s.sendall(b'x')
    assert s.recv(1) == b'x'
assert end(begin(9)) == errno.ECONNREFUSED
";
    passed(&net.python(&[], script, &[&net.address(0)]));
}

#[test]
fn a_connection_that_the_target_resets_is_reset_for_the_program() {
    let Some(mut net) = Net::up("resets", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let server = "
import socket, struct
listener = socket.create_server(('0.0.0.0', 7001))
print('ready', flush=True)
while True:
    s, _ = listener.accept()
    s.recv(1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
";
    let mut python = net.lab.command("h2", "python3").unwrap();
    let mut child = python.args(["-c", server]).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    net.children.push(child);
    let script = "
s = socket.create_connection((sys.argv[1], 7001))
s.send(b'x')
try:
    data = s.recv(1)
except ConnectionResetError:
    sys.exit(0)
sys.exit(f'no reset: {data}')
";
    passed(&net.python(&[], script, &[&net.address(0)]));
}

#[test]
fn many_connections_of_children_and_threads_work_at_the_same_time() {
    let Some(net) = Net::up("many", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let script = "
def talk(n, count):
    for i in range(count):
        s = socket.create_connection((sys.argv[1], 7000))
        said = b'%d %d' % (n, i)
        s.sendall(said)
        got = b''
        while len(got) < len(said):
            got += s.recv(100)
        assert got == said, got
        s.close()
pids = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=talk, args=(n, 10)) for n in range(10)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        os._exit(0)
    pids.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
# Some hundred at the same time.
open_ones = [socket.create_connection((sys.argv[1], 7000)) for _ in range(300)]
for s in open_ones: s.sendall(b'x')
assert all(s.recv(1) == b'x' for s in open_ones)
";
    passed(&net.python(&[], script, &[&net.address(0)]));
}

#[test]
fn other_connections_are_left_alone() {
    let Some(mut net) = Net::up("others", &["1gbit", "1gbit"], &["--allow-forward=own:7000"]) else { return };
    let address = net.address(0);
    net.echo(&address, "7002");
    let script = "
# Loopback, a Unix socket, UDP, and a port that the server does not allow.
listener = socket.create_server(('127.0.0.1', 0))
local = socket.create_connection(listener.getsockname())
assert local.getpeername() == listener.getsockname()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect((sys.argv[1], 7000))
s = socket.create_connection((sys.argv[1], 7002))
assert s.getsockname()[0] != '127.0.0.1', 'it goes out plainly'
t = socket.create_connection((sys.argv[1], 7000))
assert t.getsockname()[0] == '127.0.0.1', 'it is forwarded'
";
    let output = net.python(&[], script, &[&address]);
    passed(&output);
    assert!(stderr(&output).contains("does not forward to"), "{}", stderr(&output));
    let required = net.python(&["--require"], "socket.create_connection((sys.argv[1], 7002))", &[&address]);
    assert!(!required.status.success());
}

#[test]
fn a_connection_over_the_only_network_goes_out_plainly_unless_that_is_refused() {
    let Some(net) = Net::up("only", &["1gbit"], &["--allow-forward"]) else { return };
    let script = "
s = socket.create_connection((sys.argv[1], 7000))
assert (s.getsockname()[0] == '127.0.0.1') == (sys.argv[2] == 'forwarded'), s.getsockname()
";
    let output = net.python(&[], script, &[&net.address(0), "plain"]);
    passed(&output);
    assert!(stderr(&output).contains("go out as they are"), "{}", stderr(&output));
    passed(&net.python(&["--require"], script, &[&net.address(0), "forwarded"]));
}

#[test]
fn a_server_that_does_not_forward_leaves_connections_as_they_are() {
    let Some(net) = Net::up("refuses", &["1gbit"], &[]) else { return };
    let script = "
s = socket.create_connection((sys.argv[1], 7000))
assert s.getsockname()[0] != '127.0.0.1'
";
    let output = net.python(&[], script, &[&net.address(0)]);
    passed(&output);
    let told = "the server does not forward connections: start it with --allow-forward\n";
    assert!(stderr(&output).ends_with(told), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

/// Kills the server of a connected program, which then does what `afterwards` says.
fn lose_session(name: &str, options: &[&str], afterwards: &str) -> Option<Output> {
    let mut net = Net::up(name, &["1gbit", "1gbit"], &["--allow-forward"])?;
    let script = "
import errno, socket, sys
s = socket.create_connection((sys.argv[1], 7000))
s.sendall(b'x')
assert s.recv(1) == b'x'
print('connected', flush=True)
try:
    data = s.recv(1)
    sys.exit(f'no reset: {data}')
except ConnectionResetError:
    pass
";
    let mut run = net.command("h1", &["run", "--token-file", "token"]);
    let run = run.args(options).args(["--", "python3", "-c"]).arg(format!("{script}{afterwards}")).arg(net.address(0));
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    run.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    net.children[0].kill().unwrap();
    Some(run.wait_with_output().unwrap())
}

#[test]
fn a_lost_session_resets_connections_and_later_ones_go_out_plainly() {
    let afterwards = "
for _ in range(3):
    t = socket.create_connection((sys.argv[1], 7000))
    assert t.getsockname()[0] != '127.0.0.1'
";
    let Some(output) = lose_session("lost", &[], afterwards) else { return };
    passed(&output);
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn where_sessions_are_required_no_connection_goes_out_plainly_after_one_is_lost() {
    let afterwards = "
for _ in range(3):
    try:
        socket.create_connection((sys.argv[1], 7000))
        sys.exit('it went out plainly')
    except OSError as e:
        assert e.errno == errno.ENETUNREACH, e
";
    let Some(output) = lose_session("required", &["--require"], afterwards) else { return };
    passed(&output);
}

#[test]
fn a_killed_supervisor_resets_connections_and_later_ones_go_out_plainly() {
    let Some(net) = Net::up("killed", &["1gbit", "1gbit"], &["--allow-forward"]) else { return };
    let script = "
import socket, sys
s = socket.create_connection((sys.argv[1], 7000))
s.sendall(b'x')
assert s.recv(1) == b'x'
print('connected', flush=True)
try:
    data = s.recv(1)
    sys.exit(f'no reset: {data}')
except ConnectionResetError:
    pass
for _ in range(3):
    t = socket.create_connection((sys.argv[1], 7000))
    assert t.getsockname()[0] != '127.0.0.1'
    assert t.getpeername() == (sys.argv[1], 7000)
print('passed', flush=True)
";
    let mut run = net.command("h1", &["run", "--token-file", "token", "--", "python3", "-c", script]);
    let mut run = run.arg(net.address(0)).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = run.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "passed\n");
}

#[test]
fn exit_codes_and_signals_are_the_programs() {
    let code = |args: &[&str]| common::multirail().args(["run", "--"]).args(args).output().unwrap();
    assert_eq!(code(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    let missing = code(&["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("cannot start /no/such/program"), "{}", stderr(&missing));
    let nested = code(&[MULTIRAIL, "run", "--", "true"]);
    assert!(stderr(&nested).contains("already supervised"), "{}", stderr(&nested));
    let mut run = common::multirail();
    run.args(["run", "--", "sh", "-c", "trap 'exit 5' TERM; echo; sleep 10 & wait"]);
    let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let began = Instant::now();
    // The first signal is for the program, and a later one for the wait for what the program left.
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        // SAFETY: the child has not been waited for, so the number is still its own.
        unsafe { nix::libc::kill(child.id() as i32, nix::libc::SIGTERM) };
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(code, Some(5));
    assert!(began.elapsed() < Duration::from_secs(9), "it did not wait for the background process");
}

#[test]
fn stdin_and_stdout_reach_a_port_of_the_host() {
    let Some(net) = Net::up("connect", &["100mbit", "100mbit"], &["--allow-forward"]) else { return };
    let mut connect = net.command("h1", &["connect", &net.address(0), "7000", "--token-file", "token"]);
    let mut connect = connect.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let sent: Vec<u8> = (0..4_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut stdin = connect.stdin.take().unwrap();
    let writer = {
        let sent = sent.clone();
        std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &sent))
    };
    let mut got = Vec::new();
    connect.stdout.as_mut().unwrap().read_to_end(&mut got).unwrap();
    writer.join().unwrap().unwrap();
    assert!(connect.wait().unwrap().success());
    assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
    let refused = net.command("h1", &["connect", &net.address(0), "9", "--token-file", "token"]).output().unwrap();
    assert!(stderr(&refused).contains("Connection refused"), "{}", stderr(&refused));
    let denied = net.command("h1", &["connect", "192.0.2.1", "80", "--via", &net.address(0), "--token-file", "token"]);
    let denied = { denied }.output().unwrap();
    assert!(stderr(&denied).contains("does not forward to 192.0.2.1:80"), "{}", stderr(&denied));
}

#[test]
fn a_local_port_reaches_a_port_of_the_server() {
    let Some(mut net) = Net::up("local", &["100mbit", "100mbit"], &["--allow-forward"]) else { return };
    let target = format!("{}:7000", net.address(0));
    let mut forward = net.command("h1", &["--json", "forward", "7100", &target, "--token-file", "token"]);
    let mut forward = forward.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(listening(&mut forward), "127.0.0.1:7100");
    let script = "
import socket, sys
s = socket.create_connection(('127.0.0.1', 7100))
s.sendall(b'through')
s.shutdown(socket.SHUT_WR)
got = b''
while data := s.recv(100):
    got += data
sys.exit(got != b'through')
";
    let mut python = net.lab.command("h1", "python3").unwrap();
    passed(&python.args(["-c", script]).output().unwrap());
    net.children.push(forward);
}
