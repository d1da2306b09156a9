//! A group that receives broadcasts one after another, over links that stay. The second one pays for
//! no connection.
//!
//! ```text
//! group receive ADDRESS FILE          takes broadcasts and writes each to FILE, on every host
//! group send METHOD HOST=CLUSTER...   broadcasts the file that a line of standard input names, on the root
//! ```
//!
//! Receivers print `done` and the time at which the data was there; the root prints `began` and the
//! time at which it began. All hosts of one machine have the same clock.
//! `cargo run -p multirail --example group -- receive 127.0.0.1:7000 /tmp/copy`

use multirail::multicast::{BroadcastHost, Group, Method, Options, Receiver};
use multirail::session::ListenConfig;
use multirail::{Config, Token};
use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Duration;

const LIMIT_BYTES: u64 = 1 << 30;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address, file] => receive(address, file).await,
        ["send", method, ref hosts @ ..] => send(method.parse()?, hosts).await,
        _ => Err("expected: receive ADDRESS FILE, or send METHOD HOST=CLUSTER...".into()),
    }
}

fn config() -> Config {
    Config::new().token(Token::new(b"what all hosts know"))
}

async fn receive(address: &str, file: &str) -> Result<(), Box<dyn Error>> {
    let mut receiver =
        Receiver::bind(ListenConfig::new(address.parse::<std::net::SocketAddr>()?, config()), LIMIT_BYTES).await?;
    say("ready", None)?;
    loop {
        let data = receiver.next().await?;
        let at = now();
        std::fs::write(file, data)?;
        say("done", Some(at))?;
    }
}

async fn send(method: Method, hosts: &[&str]) -> Result<(), Box<dyn Error>> {
    let host = |word: &&str| {
        let (address, cluster) = word.split_once('=').ok_or("expected HOST=CLUSTER")?;
        Ok(BroadcastHost::new(address, cluster.parse()?))
    };
    let hosts = hosts.iter().map(host).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let options = Options::new().method(method).config(config());
    let mut group = Group::create(&hosts, 0, &options).await?;
    say("ready", None)?;
    let (lines, mut named) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|l| lines.blocking_send(l))
    });
    while let Some(file) = named.recv().await {
        let data = std::fs::read(file)?;
        let at = now();
        let summary = group.broadcast(&data).await?;
        if !summary.is_complete() {
            return Err(format!("not all hosts are complete: {:?}", summary.hosts).into());
        }
        say("began", Some(at))?;
    }
    group.end().await;
    Ok(())
}

/// The time since this machine has started.
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn say(word: &str, at: Option<Duration>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match at {
        Some(at) => writeln!(out, "{word} {:.6}", at.as_secs_f64())?,
        None => writeln!(out, "{word}")?,
    }
    out.flush()
}
