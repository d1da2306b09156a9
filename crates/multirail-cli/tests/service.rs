//! `multirail serve` as a service: metrics, the audit log, signals, and the interfaces of a service manager.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{MULTIRAIL, Place};
use multirail::bench::{BENCH, BenchRequest};
use multirail::{Config, Session, Token, files, request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A server that runs, what it said when it was ready, and the rest of what it prints.
struct Served {
    ready: Value,
    pid: Pid,
    errors: BufReader<std::process::ChildStderr>,
}

impl Served {
    fn start(place: &mut Place, options: &[&str]) -> Self {
        fs::create_dir_all(place.path("root")).unwrap();
        if !place.path("token").exists() {
            place.token();
        }
        let mut serve = place.multirail(&["--json", "serve", "--root", "root", "--token-file", "token"]);
        let child = serve.args(options).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::of(place, child.spawn().unwrap())
    }

    fn of(place: &mut Place, mut child: Child) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let pid = Pid::from_raw(child.id() as i32);
        place.servers.push(child);
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| {
            errors.read_line(&mut line).unwrap();
            panic!("no server: {line:?}")
        });
        Self { ready, pid, errors }
    }

    fn address(&self) -> &str {
        self.ready["listening"].as_str().unwrap()
    }

    fn metrics(&self) -> String {
        http(&self.ready, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }
}

fn http(ready: &Value, request: &str) -> String {
    let mut stream = TcpStream::connect(ready["metrics"].as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a metric with its labels.
fn value(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

fn config(place: &Place) -> Config {
    Config::new().token(Token::from_file(&place.path("token")).unwrap())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, future).await.expect("it takes too long") })
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < TIMEOUT, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Begins a request that lasts until `end` rounds are done.
async fn begin_echo(session: &mut Session, rounds: u32) {
    let echo = BenchRequest::Echo { message_bytes: 10, rounds, strategy: "adaptive".into(), fragment_bytes: 1 };
    request::send_request(session, BENCH, &echo).await.unwrap();
    echo_once(session).await;
}

async fn echo_once(session: &mut Session) {
    session.send(&[7; 10]).await.unwrap();
    assert_eq!(session.recv(&mut [0; 10]).await.unwrap(), 10);
}

#[test]
fn metrics_show_what_runs_and_what_has_been() {
    let mut place = Place::new("metrics");
    let served = Served::start(&mut place, &["--listen", "127.0.0.1:0", "--metrics", "0"]);
    let before = served.metrics();
    assert!(before.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{before}");
    assert!(before.ends_with("# EOF\n"), "{before}");
    assert_eq!((value(&before, "multirail_sessions"), value(&before, "multirail_memory_used_bytes")), (0, 0));
    block_on(async {
        let mut session = Session::connect(served.address(), config(&place)).await.unwrap();
        begin_echo(&mut session, 2).await;
        let during = served.metrics();
        assert_eq!(value(&during, "multirail_sessions"), 1, "{during}");
        assert_eq!(value(&during, "multirail_rails_up"), 1);
        assert_eq!(value(&during, "multirail_requests_running{service=\"bench\"}"), 1);
        assert_eq!(value(&during, "multirail_memory_used_bytes"), 10);
        assert_eq!(value(&during, "multirail_memory_limit_bytes"), 1 << 30);
        echo_once(&mut session).await;
        fs::write(place.path("file"), vec![1; 100_000]).unwrap();
        let sources = [place.path("file")];
        files::put(&mut session, &sources, Path::new(""), &files::Options::new()).await.unwrap();
        files::put(&mut session, &sources, Path::new("../x"), &files::Options::new()).await.unwrap_err();
        session.close().await.unwrap();
        let wrong = Config::new().token(Token::new(b"another token of some length"));
        Session::connect(served.address(), wrong).await.unwrap_err();
    });
    TcpStream::connect(served.address()).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let ended = |metrics: &str| {
        value(metrics, "multirail_sessions") == 0
            && value(metrics, "multirail_refused_connections_total{reason=\"protocol\"}") == 1
    };
    until("the end of the session", || ended(&served.metrics()));
    let after = served.metrics();
    for (name, expected) in [
        ("multirail_requests_total{service=\"bench\",result=\"ok\"}", 1),
        ("multirail_requests_total{service=\"files\",result=\"ok\"}", 1),
        ("multirail_requests_total{service=\"files\",result=\"refused\"}", 1),
        ("multirail_requests_running{service=\"bench\"}", 0),
        ("multirail_refused_connections_total{reason=\"unauthorized\"}", 1),
        ("multirail_memory_used_bytes", 0),
        ("multirail_rails_up", 0),
    ] {
        assert_eq!(value(&after, name), expected, "{name} in {after}");
    }
    assert!((100_000..110_000).contains(&value(&after, "multirail_received_bytes_total")), "{after}");
    assert!((20..10_000).contains(&value(&after, "multirail_sent_bytes_total")), "{after}");
}

#[test]
fn other_requests_for_metrics_are_refused() {
    let mut place = Place::new("metrics-refused");
    let served = Served::start(&mut place, &["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(9000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\x01\x02\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let mut stream = TcpStream::connect(served.ready["metrics"].as_str().unwrap()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
    }
    // Connections that say nothing do not hold up others for long.
    let silent: Vec<_> =
        (0..9).map(|_| TcpStream::connect(served.ready["metrics"].as_str().unwrap()).unwrap()).collect();
    assert!(served.metrics().contains("multirail_sessions 0"));
    drop(silent);
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_audit_log_names_each_request_and_can_be_rotated() {
    let mut place = Place::new("audit");
    fs::create_dir(place.path("log")).unwrap();
    let served = Served::start(&mut place, &["--listen", "127.0.0.1:0", "--audit", "log/audit"]);
    let (log, old) = (place.path("log/audit"), place.path("log/audit.1"));
    fs::write(place.path("file"), vec![1; 100_000]).unwrap();
    let put = |to: &'static [u8]| {
        let (served, place) = (&served, &place);
        async move {
            let mut session = Session::connect(served.address(), config(place)).await.unwrap();
            let to = Path::new(std::ffi::OsStr::from_bytes(to));
            let done = files::put(&mut session, &[place.path("file")], to, &files::Options::new()).await;
            session.close().await.unwrap();
            done
        }
    };
    block_on(async {
        put(b"a\x1b[2J\xff").await.unwrap();
        put(b"../x").await.unwrap_err();
    });
    until("two lines", || lines(&log).len() == 2);
    let raw = fs::read(&log).unwrap();
    assert!(raw.iter().all(|byte| *byte == b'\n' || !byte.is_ascii_control()), "control characters are escaped");
    let both = lines(&log);
    let [stored, refused] = &both[..] else { unreachable!() };
    assert!(stored["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{stored}");
    assert!(stored["identity"].as_str().unwrap().starts_with("ed25519:"), "{stored}");
    assert_eq!((&stored["service"], &stored["operation"]), (&"files".into(), &"put".into()));
    assert_eq!(stored["paths"][0]["path"], "a\u{1b}[2J\u{fffd}");
    assert_eq!(stored["paths"][0]["path_hex"], "611b5b324aff");
    assert!((100_000..110_000).contains(&stored["received_bytes"].as_u64().unwrap()), "{stored}");
    assert_eq!((&stored["entries"], &stored["result"]), (&1.into(), &"ok".into()));
    assert!(stored["time"].as_str().unwrap().ends_with('Z') && stored["took_s"].is_f64(), "{stored}");
    assert_eq!(refused["result"], "refused");
    assert!(refused["why"].as_str().unwrap().contains(".."), "{refused}");

    fs::rename(&log, &old).unwrap();
    served.signal(Signal::SIGHUP);
    until("the new file", || log.exists());
    block_on(async { put(b"b").await.unwrap() });
    until("a line in the new file", || lines(&log).len() == 1);
    assert_eq!(lines(&old).len(), 2);
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&log).unwrap().permissions()) & 0o777, 0o600);
}

#[test]
fn a_server_goes_on_when_its_audit_log_is_full() {
    let mut place = Place::new("audit-full");
    // A file with that device's behaviour, as a full disk has it.
    std::os::unix::fs::symlink("/dev/full", place.path("audit")).unwrap();
    let options = ["--listen", "127.0.0.1:0", "--metrics", "0", "--audit", "audit"];
    let mut served = Served::start(&mut place, &options);
    fs::write(place.path("file"), "x").unwrap();
    for _ in 0..2 {
        block_on(async {
            let mut session = Session::connect(served.address(), config(&place)).await.unwrap();
            let sources = [place.path("file")];
            files::put(&mut session, &sources, Path::new(""), &files::Options::new()).await.unwrap();
            session.close().await.unwrap();
        });
    }
    until("both failures", || value(&served.metrics(), "multirail_audit_failures_total") == 2);
    let mut line = String::new();
    served.errors.read_line(&mut line).unwrap();
    assert!(line.contains("cannot write to the audit log"), "{line}");
}

#[test]
fn records_on_stderr_are_lines_of_json() {
    let mut place = Place::new("audit-stderr");
    let mut served = Served::start(&mut place, &["--listen", "127.0.0.1:0", "--audit", "-"]);
    block_on(async {
        let mut session = Session::connect(served.address(), config(&place)).await.unwrap();
        begin_echo(&mut session, 1).await;
        session.close().await.unwrap();
    });
    let mut line = String::new();
    served.errors.read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["service"], "bench");
}

/// What a service manager receives.
struct Manager(UnixDatagram);

impl Manager {
    fn receives(&self, word: &str) -> String {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            let mut received = [0; 4096];
            let length = self.0.recv(&mut received).unwrap_or_else(|error| panic!("no {word}: {error}"));
            let text = String::from_utf8_lossy(&received[..length]).into_owned();
            if text.lines().any(|line| line == word) {
                return text;
            }
        }
        panic!("no {word}");
    }
}

#[test]
fn a_service_manager_passes_the_socket_and_learns_the_state() {
    let mut place = Place::new("manager");
    fs::create_dir(place.path("root")).unwrap();
    place.token();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let manager = Manager(UnixDatagram::bind(place.path("notify")).unwrap());
    manager.0.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The shell knows its process id, which stays that of the server.
    let script = "LISTEN_PID=$$ exec \"$0\" --json serve --root root --token-file token 3<&0 </dev/null";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, MULTIRAIL]).current_dir(&place.dir).stdin(std::os::fd::OwnedFd::from(socket));
    command.env("LISTEN_FDS", "1").env("NOTIFY_SOCKET", place.path("notify")).env("WATCHDOG_USEC", "200000");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let served = Served::of(&mut place, child);
    assert_eq!(served.address(), address);
    manager.receives("READY=1");
    manager.receives("WATCHDOG=1");
    manager.receives("WATCHDOG=1");
    served.signal(Signal::SIGHUP);
    assert!(manager.receives("RELOADING=1").contains("MONOTONIC_USEC="));
    manager.receives("READY=1");
    block_on(async {
        let mut session = Session::connect(&address, config(&place)).await.unwrap();
        begin_echo(&mut session, 2).await;
        served.signal(Signal::SIGTERM);
        manager.receives("STOPPING=1");
        echo_once(&mut session).await;
        let end = session.recv(&mut [0; 1]).await.unwrap_err();
        assert!(end.to_string().contains("the server was stopped"), "{end}");
    });
    let status = place.servers.last_mut().unwrap().wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_second_signal_ends_requests() {
    let mut place = Place::new("signals");
    let served = Served::start(&mut place, &["--listen", "127.0.0.1:0", "--drain", "3600"]);
    block_on(async {
        let mut session = Session::connect(served.address(), config(&place)).await.unwrap();
        begin_echo(&mut session, 3).await;
        served.signal(Signal::SIGTERM);
        echo_once(&mut session).await;
        // The server may see two signals as one if they come at the same time.
        let again = async {
            loop {
                served.signal(Signal::SIGTERM);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let mut byte = [0];
        let end = tokio::select! {
            end = session.recv(&mut byte) => end.unwrap_err(),
            () = again => unreachable!(),
        };
        assert!(end.to_string().contains("the server was stopped"), "{end}");
    });
    assert!(place.servers.last_mut().unwrap().wait().unwrap().success());
}

#[test]
fn a_server_without_programs_is_confined() {
    let mut place = Place::new("confined");
    let served = Served::start(&mut place, &["--listen", "127.0.0.1:0"]);
    let status = fs::read_to_string(format!("/proc/{}/status", served.pid)).unwrap();
    // Landlock needs this, and nothing else here sets it.
    assert_eq!(status.contains("NoNewPrivs:\t1"), served.ready["confined"].as_bool().unwrap());
    let served = Served::start(&mut place, &["--listen", "127.0.0.1:0", "--allow-programs"]);
    assert_eq!(served.ready["confined"], false);
}

#[test]
fn what_a_manager_passes_must_be_a_listening_socket() {
    let mut place = Place::new("passed");
    fs::create_dir(place.path("root")).unwrap();
    let script = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve --root root 3</dev/null";
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", script, MULTIRAIL]).current_dir(&place.dir).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(common::stderr(&output).contains("no listening TCP socket"), "{}", common::stderr(&output));
    place.servers.clear();
}
