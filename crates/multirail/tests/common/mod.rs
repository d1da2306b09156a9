//! What the tests of sessions share: randomness by seed, bounded waiting, pairs of sessions, and a peer that does only what
//! it is told.
#![allow(dead_code, reason = "every test file uses a part of it")]

use multirail::handshake::{self, PROTOCOL_VERSION, Purpose, SessionId, Token};
use multirail::payload::VecSink;
use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Error, Session};
use multirail_proto::wire::{Control, Frame, packet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Waits for `future`, but not for ever: a test fails rather than hang.
pub async fn bounded<T>(what: impl AsRef<str>, seconds: u64, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(seconds), future).await {
        Ok(done) => done,
        Err(_) => panic!("{} did not happen within {seconds} s", what.as_ref()),
    }
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The seed of this run: `MULTIRAIL_TEST_SEED`, or the one given. Printed, so that a failure can be had again.
pub fn seed(default: u64) -> u64 {
    let seed = std::env::var("MULTIRAIL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(default);
    println!("seed {seed} (MULTIRAIL_TEST_SEED={seed} repeats it)");
    seed
}

/// A message whose every byte depends on its number and place.
pub fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng(number);
    let mut message = vec![0; bytes];
    for chunk in message.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes()[..chunk.len()]);
    }
    message
}

/// Where two messages differ, in few words.
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
    let address = "127.0.0.1:0".parse().expect("an address");
    Listener::bind(ListenConfig { address, insecure_no_token: false, session }).await.expect("a listener")
}

/// The next session that was let in, started here.
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
    // The server's side must run for the client to be told its ports.
    let (client, server) = tokio::join!(Session::connect(&address, config), accept(&mut listener));
    (client.expect("a session"), server, listener)
}

/// Sends a message one way and back, and compares.
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

/// A peer that passed the handshake, and from then on does only what the test says.
pub struct Raw {
    pub control: TcpStream,
    pub session: SessionId,
    pub address: SocketAddr,
    pub token: Option<Token>,
    heard: Vec<u8>,
}

impl Raw {
    /// Opens a session; no data channel yet.
    pub async fn open(address: SocketAddr, token: Option<Token>) -> Self {
        let mut control = TcpStream::connect(address).await.expect("a connection");
        let session = handshake::connect(&mut control, token.as_ref(), Purpose::New).await.expect("a handshake");
        Self { control, session, address, token, heard: Vec::new() }
    }

    pub async fn channel(&self, channel: u32) -> TcpStream {
        self.try_channel(channel, None).await.expect("a data channel")
    }

    pub async fn try_channel(&self, channel: u32, replaces: Option<u32>) -> Result<TcpStream, Error> {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let purpose = Purpose::Data { session: self.session, channel, rail: 0, replaces };
        handshake::connect(&mut stream, self.token.as_ref(), purpose).await?;
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

    /// Why the other side gave up, as it says itself.
    pub async fn hear_abort(&mut self) -> Option<String> {
        while let Some(packet) = self.hear().await {
            if let Control::Abort { reason } = packet {
                return Some(reason);
            }
        }
        None
    }
}

/// Frames as they travel.
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

/// Has `stream` end with a reset, as when the peer's machine lost the connection, and not with an end of stream.
pub fn reset(stream: TcpStream) {
    let stream = stream.into_std().expect("a stream");
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("linger");
}

pub const MAGIC: [u8; 8] = *b"mltirail";

/// A good first packet of a handshake.
pub fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    packet::encode(&(MAGIC, PROTOCOL_VERSION, Purpose::New, [7u8; 32]), &mut bytes);
    bytes
}

pub fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}
