//! The time that messages of one size take, for comparisons with the package for Python
//! (`experiments/multirail_experiments/python/scripts/arrays.py` does the same there).
//!
//! ```text
//! arrays serve ADDRESS                     answers one host after the other, without end
//! arrays stream HOST:PORT BYTES COUNT      sends COUNT messages, and waits until all have arrived
//! arrays ping-pong HOST:PORT BYTES COUNT   sends a message there and back, COUNT times
//! ```
//!
//! Both clients print the seconds that it took.

use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Session, Token};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Instant;

/// The longest message.
const LIMIT_BYTES: usize = 64 << 20;
/// How the first message, of 17 bytes, begins for a stream: then come the size and the number of messages.
const STREAM: u8 = 0;
const PING_PONG: u8 = 1;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address.parse()?).await,
        ["stream", host, bytes, count] => measure(host, STREAM, bytes.parse()?, count.parse()?).await,
        ["ping-pong", host, bytes, count] => measure(host, PING_PONG, bytes.parse()?, count.parse()?).await,
        _ => Err("expected: serve ADDRESS, or stream|ping-pong HOST:PORT BYTES COUNT".into()),
    }
}

fn config() -> Config {
    Config::new().token(Token::new(b"a secret that both hosts know"))
}

async fn serve(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut listener = Listener::bind(ListenConfig::new(address, config())).await?;
    println!("ready");
    let mut buffer = vec![0; LIMIT_BYTES];
    loop {
        let Accepted::Session(new) = listener.accept().await? else { continue };
        let mut session = new.start();
        if let Err(error) = answer(&mut session, &mut buffer).await {
            eprintln!("{error}");
        }
    }
}

async fn answer(session: &mut Session, buffer: &mut [u8]) -> Result<(), Box<dyn Error>> {
    let mut order = [0; 17];
    session.recv(&mut order).await?;
    let [bytes, count] = [1, 9].map(|at| u64::from_le_bytes(order[at..at + 8].try_into().expect("eight bytes")));
    let buffer = buffer.get_mut(..usize::try_from(bytes)?).ok_or("the size is above 64 MiB")?;
    for _ in 0..count {
        session.recv(buffer).await?;
        if order[0] == PING_PONG {
            session.send(buffer).await?;
        }
    }
    session.send(b"").await?;
    Ok(session.recv(&mut []).await.map(drop).or_else(|error| match error {
        multirail::Error::Closed => Ok(()),
        error => Err(error),
    })?)
}

async fn measure(host: &str, pattern: u8, bytes: usize, count: u64) -> Result<(), Box<dyn Error>> {
    let mut session = Session::connect(host, config()).await?;
    let order = [&[pattern][..], &(bytes as u64).to_le_bytes(), &count.to_le_bytes()].concat();
    let mut message = vec![1; bytes];
    session.send(&order).await?;
    let began = Instant::now();
    for _ in 0..count {
        session.send(&message).await?;
        if pattern == PING_PONG {
            session.recv(&mut message).await?;
        }
    }
    session.recv(&mut []).await?;
    println!("{}", began.elapsed().as_secs_f64());
    session.close().await?;
    Ok(())
}
