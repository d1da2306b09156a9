//! A session as a byte stream: `tokio::io::copy` over every rail between two hosts, and how fast it
//! went.
//!
//! ```text
//! host b$ cargo run --release -p multirail --example stream -- serve 0.0.0.0:7000
//! host a$ cargo run --release -p multirail --example stream -- send b:7000 32
//! ```
//!
//! The server has no token: for networks in which every host may connect.

use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Session};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments[..] {
        ["serve", address] => runtime.block_on(serve(address)),
        ["send", host] => runtime.block_on(send(host, 32)),
        ["send", host, mib] => runtime.block_on(send(host, mib.parse()?)),
        _ => Err("use: stream serve ADDRESS:PORT | stream send HOST:PORT [MIB]".into()),
    }
}

/// Reads streams to their end, one after the other, and answers with the number of bytes.
async fn serve(address: &str) -> Result<()> {
    let session = Config::default();
    let mut listener = Listener::bind(ListenConfig::new(address.parse::<std::net::SocketAddr>()?, session)).await?;
    loop {
        let Accepted::Session(session) = listener.accept().await? else { continue };
        let mut stream = session.start().into_stream();
        let bytes = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        stream.write_u64(bytes).await?;
        // A client that has disconnected needs nothing more.
        let _ = stream.shutdown().await;
    }
}

async fn send(host: &str, mib: u64) -> Result<()> {
    let session = Session::connect(host, Config::default()).await?;
    let watch = session.watch();
    let mut stream = session.into_stream();
    let start = Instant::now();
    let bytes = mib << 20;
    tokio::io::copy(&mut tokio::io::repeat(7).take(bytes), &mut stream).await?;
    stream.shutdown().await?;
    let seconds = start.elapsed().as_secs_f64();
    if stream.read_u64().await? != bytes {
        return Err("the peer read another number of bytes".into());
    }
    println!("{mib} MiB in {seconds:.3} s: {:.1} Mbit/s", bytes as f64 * 8.0 / 1e6 / seconds);
    for rail in watch.rails() {
        println!("  rail {}: {:.1} MiB sent", rail.rail, rail.sent_bytes as f64 / f64::from(1 << 20));
    }
    println!("  {:?}", watch.stats());
    Ok(())
}
