//! What the tests of sessions share: random numbers, bounded waiting, pairs of sessions, and a peer
//! that does only what a test says.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub mod proxy;
pub mod served;

use multirail::handshake::raw::{self, Joined};
use multirail::handshake::{PROTOCOL_VERSION, Purpose};
use multirail::payload::VecSink;
use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Error, Session, Token};
pub use multirail_proto::rng::Rng;
use multirail_proto::wire::{Control, Frame, packet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Waits for `future` with a time limit, so that a test fails instead of hanging.
pub async fn bounded<T>(what: impl AsRef<str>, seconds: u64, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(seconds), future).await {
        Ok(done) => done,
        Err(_) => panic!("{} did not happen within {seconds} s", what.as_ref()),
    }
}

/// A message in which every byte depends on the number and the position.
pub fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut message = vec![0; bytes];
    for chunk in message.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    }
    message
}

/// Describes where two messages differ.
pub fn assert_same(got: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}: length");
    if let Some(at) = (0..got.len()).find(|i| got[*i] != wanted[*i]) {
        panic!("{what}: byte {at} of {} is {:#04x}, not {:#04x}", got.len(), got[at], wanted[at]);
    }
}

pub fn token() -> Token {
    Token::new(b"the token of these tests")
}

pub async fn listen(session: Config) -> Listener {
    Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), session)).await.expect("a listener")
}

/// The next admitted session, started in this runtime.
pub async fn accept(listener: &mut Listener) -> Session {
    match bounded("a session to be let in", 10, listener.accept()).await {
        Ok(Accepted::Session(new)) => new.start(),
        other => panic!("not a session: {other:?}"),
    }
}

/// A client and a server, both driven by the calling runtime.
pub async fn pair(config: Config) -> (Session, Session, Listener) {
    let mut listener = listen(config.clone()).await;
    let address = listener.address().to_string();
    // The server must run so that the client receives its ports.
    let (client, server) = tokio::join!(Session::connect(&address, config), accept(&mut listener));
    (client.expect("a session"), server, listener)
}

/// Sends a message there and back, and compares.
pub async fn round_trip(client: &mut Session, server: &mut Session, number: u64, bytes: usize) {
    let message = pattern(number, bytes);
    one_way(client, server, &message).await;
    one_way(server, client, &message).await;
}

async fn one_way(from: &mut Session, to: &mut Session, message: &[u8]) {
    let mut sink = VecSink::new(message.len() as u64);
    let (sent, received) = tokio::join!(from.send(message), to.recv_into(&mut sink));
    sent.expect("sent");
    received.expect("received");
    assert_same(&sink.bytes, message, "a round trip");
}

/// The configuration of both sides where a test makes the bytes of one of them.
pub fn plaintext() -> Config {
    Config::new().plaintext(true)
}

/// A peer that passed the handshake and then sends only what the test sends, in plaintext.
pub struct Raw {
    pub control: TcpStream,
    pub session: raw::Session,
    pub address: SocketAddr,
    heard: Vec<u8>,
}

impl Raw {
    /// Opens a session without a data channel.
    pub async fn open(address: SocketAddr, token: Option<Token>) -> Self {
        let mut control = TcpStream::connect(address).await.expect("a connection");
        let config = plaintext().token(token);
        let session = raw::Session::open(&mut control, &config, Purpose::New).await.expect("a handshake");
        Self { control, session, address, heard: Vec::new() }
    }

    pub async fn channel(&self, channel: u32) -> TcpStream {
        self.try_channel(channel, None).await.expect("a data channel")
    }

    pub async fn try_channel(&self, channel: u32, replaces: Option<u32>) -> Result<TcpStream, Error> {
        self.join(Joined::Data { channel, rail: 0, replaces }).await
    }

    /// Opens a further connection of the session.
    pub async fn join(&self, joined: Joined) -> Result<TcpStream, Error> {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        self.session.join(&mut stream, joined).await?;
        // The other side takes it as a part of the session when it has this side's proof.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(stream)
    }

    pub async fn say(&mut self, packet: &Control) {
        let mut bytes = Vec::new();
        packet::encode(packet, &mut bytes);
        self.control.write_all(&bytes).await.expect("the control connection takes a packet");
    }

    /// The next packet on the control connection; `None` when it has ended.
    pub async fn hear(&mut self) -> Option<Control> {
        loop {
            if let Some((packet, length)) = packet::decode(&self.heard).expect("the other side speaks the protocol") {
                self.heard.drain(..length);
                return Some(packet);
            }
            let mut buffer = [0; 4096];
            match self.control.read(&mut buffer).await {
                Ok(n) if n > 0 => self.heard.extend_from_slice(&buffer[..n]),
                _ => return None,
            }
        }
    }

    /// The other side's reason for giving up.
    pub async fn hear_abort(&mut self) -> Option<String> {
        while let Some(packet) = self.hear().await {
            if let Control::Abort { reason } = packet {
                return Some(reason);
            }
        }
        None
    }
}

/// Encodes frames.
pub fn frames(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        let mut header = [0; 64];
        let length = frame.encode(&mut header);
        bytes.extend_from_slice(&header[..length]);
    }
    bytes
}

/// A whole message in one run.
pub fn whole(message: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut bytes = frames(&[Frame::Whole { message_low: message as u16, length, confirm: false }]);
    bytes.extend_from_slice(payload);
    bytes
}

/// Lets this process open this many files, as far as its hard limit allows.
pub fn allow_files(count: u64) {
    // SAFETY: both calls get a valid rlimit.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(limit.rlim_cur.max(count));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Makes `stream` end with a reset, as if the peer's machine had lost the connection.
pub fn reset(stream: TcpStream) {
    let stream = stream.into_std().expect("a stream");
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("linger");
}

pub const MAGIC: [u8; 8] = *b"mltirail";

/// A good first packet of a handshake, for plaintext.
pub fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    let open_in_plaintext = (0u32, true, true, None::<[u8; 32]>);
    packet::encode(&(MAGIC, PROTOCOL_VERSION, open_in_plaintext, [7u8; 32]), &mut bytes);
    bytes
}

pub fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}
