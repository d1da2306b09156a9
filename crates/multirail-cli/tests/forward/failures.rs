//! Rails that fail under `multirail run`.

use super::Net;
use multirail_lab::LinkState;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// What takes a second, also where other programs use the processors.
const GENEROUS: Duration = Duration::from_secs(60);
/// What a rail must carry of a transfer to be one that is used.
const IN_USE_BYTES: u64 = 1 << 20;

/// A program on `h1` under `multirail run`, which says when it has come to a step, and is told to go on. It waits for
/// nothing longer than two minutes, and is ended when this is dropped: its connections are reset.
struct Program(Child);

impl Program {
    fn start(net: &Net, script: &str) -> Self {
        let mut run = net.command("h1", &["run", "--token-file", "token", "--", "python3", "-c"]);
        let script = format!("import errno, hashlib, os, socket, sys, threading, time\n{script}");
        let run = run.arg(script).arg(net.address(0)).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(run.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for the program's next line.
    fn says(&mut self, expected: &str) {
        let mut said = vec![0; expected.len() + 1];
        let read = self.0.stdout.as_mut().unwrap().read_exact(&mut said);
        let said = String::from_utf8_lossy(&said);
        assert!(read.is_ok() && said.strip_suffix('\n') == Some(expected), "said {said:?}\n{}", self.errors());
    }

    fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits for the end; returns what was reported on stderr.
    fn passes(&mut self) -> String {
        let errors = self.errors();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}\n{errors}");
        errors
    }

    /// All of stderr, at the end of the program.
    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.0.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a rail has carried a part of the transfer in both directions.
fn wait_for_use(net: &Net, program: &mut Program, rail: usize) {
    let both = || ["tx_bytes", "rx_bytes"].map(|name| net.counter(rail, name));
    let (before, end) = (both(), Instant::now() + GENEROUS);
    while both().iter().zip(before).any(|(now, before)| now - before < IN_USE_BYTES) {
        let ended = program.0.try_wait().unwrap();
        assert!(ended.is_none(), "the program has ended: {}", program.errors());
        assert!(Instant::now() < end, "rail {rail} is not used: {before:?}, {:?}", both());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_connection_goes_on_when_a_rail_fails_and_comes_back() {
    let Some(net) = Net::up("healed", &["50mbit", "50mbit"], &["--allow-forward"]) else { return };
    // It sends until it is told to end, on one connection, and compares what has come back.
    let script = "
s = socket.create_connection((sys.argv[1], 7000), timeout=120)
assert s.getsockname()[0] == '127.0.0.1', 'it is forwarded'
sent, got, count = hashlib.sha256(), hashlib.sha256(), 0
def read():
    global count
    while data := s.recv(1 << 16):
        got.update(data)
        count += len(data)
reader = threading.Thread(target=read)
reader.start()
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), over.set())).start()
total = 0
while not over.is_set():
    data = os.urandom(1 << 16)
    s.sendall(data)
    sent.update(data)
    total += len(data)
s.shutdown(socket.SHUT_WR)
reader.join()
assert (count, got.digest()) == (total, sent.digest()), (count, total)
";
    let mut program = Program::start(&net, script);
    for (rail, failure) in [(0, LinkState::Cut), (1, LinkState::Cut), (0, LinkState::Down), (1, LinkState::Down)] {
        let other = 1 - rail;
        wait_for_use(&net, &mut program, rail);
        net.lab.set_link(rail, failure).unwrap();
        wait_for_use(&net, &mut program, other);
        net.lab.set_link(rail, LinkState::Up).unwrap();
        wait_for_use(&net, &mut program, rail);
    }
    program.go_on();
    assert_eq!(program.passes(), "", "no connection went out plainly");
}

/// This takes the 30 s that a session lives without rails.
#[test]
fn connections_are_reset_when_all_rails_are_cut_for_long_and_later_ones_are_forwarded_again() {
    let Some(net) = Net::up("all-cut", &["100mbit", "100mbit"], &["--allow-forward"]) else { return };
    let script = "
def connected():
    s = socket.create_connection((sys.argv[1], 7000), timeout=120)
    assert s.getsockname()[0] == '127.0.0.1', 'it is forwarded'
    s.sendall(b'x')
    assert s.recv(1) == b'x'
    return s
idle, busy = connected(), connected()
def send():
    try:
        while True:
            busy.sendall(bytes(1 << 16))
    except ConnectionResetError:
        sent.append('reset')
    # The kernel says it once only, and the reader may have been the first.
    except BrokenPipeError:
        sent.append('broken')
def read():
    try:
        while data := busy.recv(1 << 16):
            pass
        received.append('ended')
    except ConnectionResetError:
        received.append('reset')
sent, received = [], []
threads = [threading.Thread(target=send), threading.Thread(target=read)]
[t.start() for t in threads]
print('connected', flush=True)
try:
    data = idle.recv(1)
    sys.exit(f'no reset: {data}')
except ConnectionResetError:
    pass
[t.join() for t in threads]
assert 'reset' in sent + received, (sent, received)
print('reset', flush=True)
# One connection while the rails are down: a server that was there before is looked for again soon, not in a minute.
attempt = socket.socket()
attempt.setblocking(False)
attempt.connect_ex((sys.argv[1], 7000))
attempt.close()
print('tried', flush=True)
sys.stdin.readline()
for _ in range(300):
    try:
        s = socket.create_connection((sys.argv[1], 7000), timeout=120)
    except OSError as error:
        # It went out plainly, and waited for an answer to ARP from before the rails came back.
        assert error.errno == errno.EHOSTUNREACH, error
        time.sleep(0.1)
        continue
    if s.getsockname()[0] == '127.0.0.1':
        s.sendall(b'x')
        assert s.recv(1) == b'x'
        break
    time.sleep(0.1)
else:
    sys.exit('it is not forwarded again')
";
    let mut program = Program::start(&net, script);
    program.says("connected");
    wait_for_use(&net, &mut program, 0);
    for rail in 0..2 {
        net.lab.set_cut(rail).unwrap();
    }
    program.says("reset");
    program.says("tried");
    for rail in 0..2 {
        net.lab.set_up(rail).unwrap();
    }
    program.go_on();
    let reported = program.passes();
    assert!(reported.contains("use one network"), "of the one in between: {reported}");
}
