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
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;

const LIMIT_BYTES: u64 = 1 << 30;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address, file] => {
            let receiver = bind(address).await?;
            say("ready", None)?;
            receive(receiver, file).await
        }
        ["send", method, ref hosts @ ..] => send(method.parse()?, hosts, lines()).await,
        _ => Err("expected: receive ADDRESS FILE, or send METHOD HOST=CLUSTER...".into()),
    }
}

fn config() -> Config {
    Config::new().token(Token::new(b"what all hosts know"))
}

async fn bind(address: &str) -> Result<Receiver, Box<dyn Error>> {
    Ok(Receiver::bind(ListenConfig::new(address.parse::<SocketAddr>()?, config()), LIMIT_BYTES).await?)
}

async fn receive(mut receiver: Receiver, file: &str) -> Result<(), Box<dyn Error>> {
    loop {
        let data = receiver.next().await?;
        let at = now();
        std::fs::write(file, data)?;
        say("done", Some(at))?;
    }
}

async fn send(method: Method, hosts: &[&str], mut files: mpsc::Receiver<String>) -> Result<(), Box<dyn Error>> {
    let host = |word: &&str| {
        let (address, cluster) = word.split_once('=').ok_or("expected HOST=CLUSTER")?;
        Ok(BroadcastHost::new(address, cluster.parse()?))
    };
    let hosts = hosts.iter().map(host).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let options = Options::new().method(method).config(config());
    let mut group = Group::create(&hosts, 0, &options).await?;
    say("ready", None)?;
    while let Some(file) = files.recv().await {
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

/// The lines of standard input.
fn lines() -> mpsc::Receiver<String> {
    let (said, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| said.blocking_send(line))
    });
    lines
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

#[test]
fn two_broadcasts_arrive() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let path = |name| std::env::temp_dir().join(format!("multirail-group-{}-{name}", std::process::id()));
    let [first, second, copy] = ["first", "second", "copy"].map(path).map(|p| p.to_str().unwrap().to_owned());
    std::fs::write(&first, [1; 1000]).unwrap();
    std::fs::write(&second, vec![2; 300_000]).unwrap();
    let all = async {
        let receiver = bind("127.0.0.1:0").await.unwrap();
        let host = format!("{}=0", receiver.address());
        let hosts = [host.as_str()];
        let (named, files) = mpsc::channel(2);
        named.try_send(first.clone()).unwrap();
        named.try_send(second.clone()).unwrap();
        drop(named);
        let taking = async {
            tokio::select! {
                ended = receive(receiver, &copy) => panic!("{ended:?}"),
                () = async {
                    while std::fs::read(&copy).ok() != std::fs::read(&second).ok() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                } => {}
            }
        };
        let (sent, ()) = tokio::join!(send(Method::Adaptive, &hosts, files), taking);
        sent.unwrap();
    };
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), all).await });
    for file in [first, second, copy] {
        let _ = std::fs::remove_file(file);
    }
    ended.expect("both broadcasts arrive within 30 s");
}
