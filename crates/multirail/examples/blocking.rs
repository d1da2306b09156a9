//! A session without tokio: plain threads, blocking calls, `std::io::{Read, Write}`.
//!
//! ```text
//! cargo run --release -p multirail --example blocking
//! ```

use multirail::Config;
use multirail::blocking::{Listener, Session};
use multirail::session::ListenConfig;
use std::io::{Read, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::default()))?;
    let host = listener.address().to_string();

    let server = std::thread::spawn(move || -> std::io::Result<usize> {
        let (session, peer) = listener.accept()?;
        println!("a session with {peer}");
        let mut text = String::new();
        let mut stream = session.into_stream();
        stream.read_to_string(&mut text)?;
        stream.write_all(text.to_uppercase().as_bytes())?;
        stream.shutdown()?;
        Ok(text.len())
    });

    let mut stream = Session::connect(&host, Config::default())?.into_stream();
    stream.write_all(b"one rope from many strands")?;
    stream.shutdown()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("{answer}");
    println!("{} bytes", server.join().expect("the server does not panic")?);
    Ok(())
}
