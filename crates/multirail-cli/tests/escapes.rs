//! What the command prints of names and reasons that another host has chosen.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Place, listening, stderr};
use multirail::handshake::{Purpose, SessionId, raw};
use multirail::{Config, Token};
use multirail_proto::wire::{Control, packet};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Clears the screen, writes the clipboard, reverses the order of characters, and begins a line.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}z\nhint: run this";
const SHOWN: &str = "a\\u{1b}[2J\\u{1b}]52;c;aGk=\\u{7}\\u{9b}2J\\u{202e}z";

/// No text on stdout or stderr makes a terminal do anything.
fn assert_harmless(output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(bytes).unwrap();
        let unsafe_at = text.find(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}');
        assert_eq!(unsafe_at, None, "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("hint: run")), "{text:?}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Sessions in plaintext, whose bytes a test makes, and with a new token.
fn plaintext(place: &Place) -> Config {
    place.token();
    Config::new().plaintext(true).token(Token::from_file(&place.path("token")).unwrap())
}

/// A packet by which a peer ends a session.
fn abort() -> Vec<u8> {
    let mut bytes = Vec::new();
    packet::encode(&Control::Abort { reason: HOSTILE.to_owned() }, &mut bytes);
    bytes
}

/// Listens on a port, and ends every session of a number of clients at once.
fn aborting_server(clients: usize, config: Config) -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    let serve = async move {
        let listener = TcpListener::from_std(listener).unwrap();
        for _ in 0..clients {
            let (mut stream, _) = listener.accept().await.unwrap();
            let id: SessionId = packet::decode_body(&[1; 16]).unwrap();
            raw::answer(&mut stream, &config, |_, _| Ok(id)).await.unwrap();
            stream.write_all(&abort()).await.unwrap();
            // The client has read the packet when it ends the connection.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    (address, std::thread::spawn(|| block_on(serve)))
}

/// Makes a special file, which copies skip and name.
fn make_pipe(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn names_of_a_server() {
    let mut place = Place::new("names");
    let address = place.serve("root", &[]);
    fs::create_dir(place.path("root/tree")).unwrap();
    make_pipe(&place.path("root/tree").join(HOSTILE));
    let source = format!("mr://{address}/tree");
    let text = place.multirail(&["cp", "-r", &source, "copy"]).output().unwrap();
    assert_harmless(&text);
    let skipped = format!("skipped tree/{SHOWN}\\nhint: run this: a special file\n");
    assert!(stderr(&text).contains(&skipped), "{}", stderr(&text));
    let json = place.multirail(&["--json", "cp", "-r", &source, "other"]).output().unwrap();
    assert_harmless(&json);
    let summary: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(summary["skipped"][0]["path"], format!("tree/{HOSTILE}"));
    assert_eq!(summary["skipped"][0].get("path_hex"), None);
}

#[test]
fn names_that_are_not_utf_8() {
    let mut place = Place::new("bytes");
    let address = place.serve("root", &[]);
    fs::create_dir(place.path("tree")).unwrap();
    make_pipe(&place.path("tree").join(OsStr::from_bytes(b"\xff")));
    let mut copy = place.multirail(&["--json", "cp", "-r", "tree"]);
    let absent = OsStr::from_bytes(b"absent\xfe");
    let copied = copy.arg(absent).arg(format!("mr://{address}/")).output().unwrap();
    assert_eq!(copied.status.code(), Some(1), "{}", stderr(&copied));
    let summary: Value = serde_json::from_slice(&copied.stdout).unwrap();
    let (skipped, failed) = (&summary["skipped"][0], &summary["failed"][0]);
    assert_eq!((&skipped["path"], &skipped["path_hex"]), (&"tree/\u{fffd}".into(), &"747265652fff".into()));
    assert_eq!((&failed["path"], &failed["path_hex"]), (&"absent\u{fffd}".into(), &"616273656e74fe".into()));
    assert_eq!((&failed["cause"], &failed["side"]), (&"read".into(), &"client".into()));
}

#[test]
fn the_reason_of_a_server_that_ends_a_session() {
    let place = Place::new("server");
    place.write("file", "x");
    let (address, server) = aborting_server(2, plaintext(&place));
    let copy = ["cp", "--plaintext", "--token-file", "token", "file", &format!("mr://{address}/")];
    let text = place.multirail(&copy).output().unwrap();
    assert_eq!(text.status.code(), Some(1));
    assert_harmless(&text);
    assert!(stderr(&text).contains(SHOWN) && stderr(&text).contains("\n  hint: run this"), "{}", stderr(&text));
    let json = place.multirail(&copy).arg("--json").output().unwrap();
    server.join().unwrap();
    assert_harmless(&json);
    let error: Value = serde_json::from_slice(&json.stderr).unwrap();
    assert!(error["error"].as_str().unwrap().contains(HOSTILE), "{error}");
}

#[test]
fn the_reason_of_a_client_in_the_log_of_a_server() {
    let place = Place::new("log");
    let config = plaintext(&place);
    let options = ["--listen", "127.0.0.1:0", "--plaintext", "--token-file", "token"];
    let mut serve = place.multirail(&["--json", "serve"]);
    let mut server = serve.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let address = listening(&mut server);
    block_on(async {
        let mut control = TcpStream::connect(address).await.unwrap();
        raw::Session::open(&mut control, &config, Purpose::New).await.unwrap();
        control.write_all(&abort()).await.unwrap();
        let _ = control.read_to_end(&mut Vec::new()).await;
    });
    // The event may be written after the connection has ended.
    let mut log = server.stderr.take().unwrap();
    let mut stderr = Vec::new();
    while !stderr.ends_with(b"\n") {
        let mut some = [0; 4096];
        let read = log.read(&mut some).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&stderr));
        stderr.extend_from_slice(&some[..read]);
    }
    server.kill().unwrap();
    let status = server.wait().unwrap();
    log.read_to_end(&mut stderr).unwrap();
    let text = String::from_utf8(stderr.clone()).unwrap();
    assert_harmless(&Output { status, stdout: Vec::new(), stderr });
    assert!(text.contains("session failed") && text.contains("52;c;aGk="), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}
