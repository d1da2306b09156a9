//! A peer with the token that sends anything at any moment of a session: valid and slightly wrong
//! frames, control packets and requests, connections that come and go. The server neither panics
//! nor spins, its memory has a bound, and other clients are served.

mod common;

use common::served::{self, Folder, Served};
use common::*;
use multirail::bench::{BENCH, BenchRequest};
use multirail::handshake::Purpose;
use multirail::handshake::raw::{self, Joined};
use multirail::protocol::ProtocolName;
use multirail_proto::striping::Direction;
use multirail_proto::wire::{ChannelReport, Control, Frame, Report, packet};
use multirail_testing::for_seeds;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a peer does in a sequence.
const STEPS: usize = 120;
/// The server's memory must stay below this. Requests of benchmarks may use 64 MiB of it.
const MAX_RSS_BYTES: u64 = 400 << 20;

/// The other process of the test.
#[test]
#[ignore = "the other process of the test in this file"]
fn child() {
    served::child(|role, _| panic!("no such role: {role}"));
}

#[test]
fn no_sequence_harms_the_server() {
    let root = Folder::new("sequences");
    std::fs::write(root.0.join("file"), pattern(1, 300_000)).unwrap();
    let server = Served::start_in(&root.0, None);
    let runtime = runtime();
    for_seeds(8, |seed| {
        runtime.block_on(async {
            let mut peer = Hostile::new(server.address, seed).await;
            let doing = async {
                for _ in 0..STEPS {
                    peer.step().await;
                }
            };
            let ((), ()) = bounded("a sequence", 120, async { tokio::join!(doing, server.is_served()) }).await;
            let rss_bytes = server.rss_bytes();
            assert!(rss_bytes < MAX_RSS_BYTES, "the server holds {rss_bytes} bytes");
            let said = server.errors();
            assert!(!said.contains("panicked"), "{said}");
        });
    });
    runtime.block_on(async {
        // Sessions that wait for their peers give up after two seconds.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before_s = server.cpu_s();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let used_s = server.cpu_s() - before_s;
        println!("{used_s} s of processor time in 2 s, {} bytes", server.rss_bytes());
        assert!(used_s < 1.0, "the server uses {used_s} s of processor time in 2 s, and there are no clients");
        server.is_served().await;
    });
}

/// A peer and its random choices.
struct Hostile {
    rng: Rng,
    address: SocketAddr,
    raw: Raw,
    channels: Vec<TcpStream>,
    next_channel: u32,
    /// The number of the next message.
    message: u32,
    /// The length that was announced for it.
    total_bytes: u64,
}

impl Hostile {
    async fn new(address: SocketAddr, seed: u64) -> Self {
        let raw = Raw::open(address, Some(token())).await;
        let rng = Rng::new(seed);
        let mut this = Self { rng, address, raw, channels: Vec::new(), next_channel: 0, message: 0, total_bytes: 0 };
        this.open_channel(None).await;
        this
    }

    async fn step(&mut self) {
        match self.rng.below(16) {
            0..=3 => self.request().await,
            4..=7 => self.frame().await,
            8 | 9 => self.control().await,
            10 => self.open_channel(None).await,
            11 => {
                let replaces = self.rng.below(u64::from(self.next_channel) + 2) as u32;
                self.open_channel(Some(replaces)).await;
            }
            12 => self.lose_channel(),
            13 => self.read().await,
            14 if self.rng.below(3) == 0 => self.change_control().await,
            14 if self.rng.below(4) == 0 => self.connection().await,
            _ => tokio::time::sleep(Duration::from_millis(self.rng.below(20))).await,
        }
    }

    /// A request, in one message or in parts: valid, of random bytes, or with one byte changed.
    async fn request(&mut self) {
        let name = match self.rng.below(10) {
            0..=4 => BENCH,
            5 | 6 => ProtocolName::new("files"),
            7 => ProtocolName::new("pipeline"),
            8 => ProtocolName::new("multicast"),
            _ => ProtocolName::new("pipeline-edge"),
        };
        let message_bytes = [0, 1, 10, 70_000, 16 << 20, 1 << 40][self.rng.below(6) as usize];
        let rounds = [0, 1, 3, u32::MAX][self.rng.below(4) as usize];
        let request = match self.rng.below(3) {
            0 => BenchRequest::CpuTime,
            1 => BenchRequest::Absorb { message_bytes },
            _ => BenchRequest::Echo { message_bytes, rounds, strategy: "two-ended".into(), fragment_bytes: rounds },
        };
        let mut name_bytes = [0; 16];
        let text = name.to_string();
        name_bytes[..text.len()].copy_from_slice(text.as_bytes());
        let mut body = name_bytes.to_vec();
        if name == BENCH {
            // The bytes behind a control packet's length are those of a request.
            let mut encoded = Vec::new();
            packet::encode(&request, &mut encoded);
            body.extend_from_slice(&encoded[packet::PREFIX_BYTES..]);
        } else {
            let length = self.rng.below(40) as usize;
            body.extend((0..length).map(|_| self.rng.below(6) as u8));
        }
        if self.rng.below(4) == 0 {
            let at = self.rng.below(body.len() as u64) as usize;
            body[at] ^= 1 << self.rng.below(8);
        }
        let bytes = whole(self.message, &body);
        self.message += 1;
        self.total_bytes = message_bytes;
        self.write(&bytes).await;
        // The message that a benchmark waits for, perhaps not all of it.
        if self.rng.below(2) == 0 {
            let length = (message_bytes.min(200_000) as usize) >> self.rng.below(2);
            let bytes = whole(self.message, &vec![7; length]);
            self.message += u32::from(self.rng.below(8) != 0);
            self.write(&bytes).await;
        }
    }

    /// A number near `of`, mostly `of` itself.
    fn near(&mut self, of: u64) -> u64 {
        match self.rng.below(12) {
            0 => of + 1,
            1 => of.saturating_sub(1),
            2 => self.rng.below(of.max(1)),
            3 => self.rng.next_u64() >> self.rng.below(64),
            _ => of,
        }
    }

    /// A frame that goes on with the current message, or nearly.
    async fn frame(&mut self) {
        if self.rng.below(3) == 0 {
            self.total_bytes = 1 << self.rng.below(36);
        }
        let total_bytes = self.near(self.total_bytes).min(1 << 47);
        let message = self.near(self.message.into()) as u32;
        let offset = self.rng.below(total_bytes.max(1));
        let run = self.near((total_bytes - offset.min(total_bytes)).min(50_000)).min(1 << 31) as u32;
        let confirm = self.rng.below(2) == 0;
        let open = Frame::Open { message, total_bytes, confirm };
        let list = match self.rng.below(8) {
            0 => vec![open],
            1 => vec![Frame::Continue],
            2 => vec![Frame::End { message }],
            3 => vec![Frame::Pad { length: run }],
            4 => {
                let direction = if confirm { Direction::Increment } else { Direction::Decrement };
                let fragment_bytes = run.max(1);
                vec![Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm }]
            }
            _ => vec![open, Frame::Run { message, offset, length: run }],
        };
        let mut bytes = frames(&list);
        let payload = if matches!(list.last(), Some(Frame::Open { .. } | Frame::End { .. })) { 0 } else { run };
        let payload = self.near(u64::from(payload).min(50_000)).min(60_000);
        bytes.extend(vec![3; payload as usize]);
        if self.rng.below(16) == 0 {
            let at = self.rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.rng.below(8);
        }
        self.write(&bytes).await;
    }

    async fn control(&mut self) {
        let row = |channel, position| ChannelReport { channel, position, busy_bytes: position, busy_us: 1 };
        let packet = match self.rng.below(8) {
            0 => Control::Close { messages: self.near(self.message.into()) as u32 },
            1 => Control::Ports(Vec::new()),
            2 if self.rng.below(4) == 0 => Control::Abort { reason: "\x1b[2J".repeat(self.rng.below(50) as usize) },
            _ => {
                let completed_below = self.near(0) as u32;
                let channels = (0..self.rng.below(3)).map(|channel| row(channel as u32, 0)).collect();
                Control::Report(Report { completed_below, close_heard: self.rng.below(8) == 0, channels })
            }
        };
        let mut bytes = Vec::new();
        packet::encode(&packet, &mut bytes);
        if self.rng.below(8) == 0 {
            bytes.truncate(self.rng.below(bytes.len() as u64) as usize);
        }
        let wrote = tokio::time::timeout(Duration::from_millis(100), self.raw.control.write_all(&bytes)).await;
        if !matches!(wrote, Ok(Ok(()))) {
            self.begin_again().await;
        }
    }

    /// Writes to some channel. If the server has ended the session, another one begins.
    async fn write(&mut self, bytes: &[u8]) {
        if self.channels.is_empty() {
            self.open_channel(None).await;
        }
        let Some(count) = (!self.channels.is_empty()).then_some(self.channels.len() as u64) else { return };
        let channel = self.rng.below(count) as usize;
        let stream = &mut self.channels[channel];
        // A server that does not want the bytes takes none, which is its right.
        let wrote = tokio::time::timeout(Duration::from_millis(50), stream.write_all(bytes)).await;
        if matches!(wrote, Ok(Err(_))) {
            self.begin_again().await;
        }
    }

    async fn open_channel(&mut self, replaces: Option<u32>) {
        match self.raw.try_channel(self.next_channel, replaces).await {
            Ok(stream) => self.channels.push(stream),
            Err(_) => return Box::pin(self.begin_again()).await,
        }
        self.next_channel += u32::from(self.rng.below(8) != 0);
    }

    fn lose_channel(&mut self) {
        if self.channels.is_empty() {
            return;
        }
        let at = self.rng.below(self.channels.len() as u64) as usize;
        let stream = self.channels.swap_remove(at);
        if self.rng.below(2) == 0 {
            reset(stream);
        }
    }

    /// Takes some of what the server sends, so that it goes on.
    async fn read(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        for stream in self.channels.iter_mut().chain([&mut self.raw.control]) {
            let _ = tokio::time::timeout(Duration::from_millis(5), stream.read(&mut buffer)).await;
        }
    }

    /// Another control connection for the session, with or without the end of the first one.
    async fn change_control(&mut self) {
        match self.raw.join(Joined::Control).await {
            Ok(stream) => {
                let old = std::mem::replace(&mut self.raw.control, stream);
                if self.rng.below(2) == 0 {
                    reset(old);
                }
            }
            Err(_) => self.begin_again().await,
        }
    }

    /// A connection beside the session, with a part of what its protocol expects.
    async fn connection(&mut self) {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let name = ["probe", "pipeline-edge", "bench-edge", "nothing"][self.rng.below(4) as usize];
        let purpose = Purpose::Connection { protocol: ProtocolName::new(name) };
        if raw::Session::open(&mut stream, &plaintext().token(token()), purpose).await.is_ok() {
            let length = self.rng.below(64) as usize;
            let said: Vec<u8> = (0..length).map(|_| self.rng.below(3) as u8).collect();
            let _ = stream.write_all(&said).await;
        }
    }

    /// Leaves without a word, and opens another session.
    async fn begin_again(&mut self) {
        let seed = self.rng.next_u64();
        *self = Box::pin(Self::new(self.address, seed)).await;
    }
}
