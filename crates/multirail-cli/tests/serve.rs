//! `multirail serve` with clients that it refuses.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Place, listening};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Stdio};
use std::time::Instant;

const CONNECTIONS: u64 = 500;

/// Reads the log until it has told of all connections, and returns the number of lines.
fn lines_until_all_are_told(log: ChildStderr) -> u64 {
    let (mut told, mut lines) = (0, 0);
    for line in BufReader::new(log).lines() {
        let line = line.unwrap();
        assert!(line.contains("127.0.0.1:"), "it names a client: {line}");
        lines += 1;
        told += match line.split_once("count=") {
            None => 1,
            Some((_, rest)) => rest.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0),
        };
        if told >= CONNECTIONS {
            break;
        }
    }
    assert_eq!(told, CONNECTIONS);
    lines
}

#[test]
fn a_flood_of_refused_connections_has_few_lines_in_the_log() {
    let mut place = Place::new("flood");
    place.token();
    let mut serve = place.multirail(&["--json", "serve", "--listen", "127.0.0.1:0", "--token-file", "token"]);
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let address = listening(&mut server);
    let log = server.stderr.take().unwrap();
    place.servers.push(server);
    let begun = Instant::now();
    // The log is read at the same time, since a server waits while it cannot write.
    let lines = std::thread::spawn(|| lines_until_all_are_told(log));
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(&address).unwrap();
        // The server closes the connection, which can also reset it.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let lines = lines.join().unwrap();
    // Ten lines a minute, and a summary a second.
    let seconds = begun.elapsed().as_secs() + 1;
    assert!(lines <= 10 * (seconds / 60 + 1) + seconds, "{lines} lines in {seconds} s");
}
