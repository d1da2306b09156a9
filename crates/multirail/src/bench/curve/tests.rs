//! Edges to a server of this process over every transport.

use super::*;
use crate::server::Server;
use multirail_net::Token;
use multirail_net::session::{COPY_LIMIT_BYTES, ListenConfig};
use multirail_net::{Session, request};
use multirail_pipeline::edge::connect::{Dial, connect};
use multirail_pipeline::edge::{HEADER_BYTES, Message, Transport};
use multirail_testing::{Requirement, skip};

/// A server on loopback for the time of a test.
fn served(config: &Config) -> std::net::SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), config.clone());
    let server = Server::new(listen, std::env::temp_dir());
    std::thread::spawn(move || {
        runtime::block_on(server.serve(move |address| tell.send(address).unwrap())).unwrap();
    });
    told.recv().unwrap()
}

/// Records what is measured on a line, to compare the point with it.
struct Recorded<'a> {
    line: &'a mut dyn Line,
    /// The round trips of the last call, in microseconds.
    turns_us: Vec<f64>,
    /// The messages of the last stream, and its duration in seconds, at least.
    streamed: (u64, f64),
}

impl Line for Recorded<'_> {
    fn turns(&mut self, message_bytes: u64, rounds: u32) -> Result<Vec<f64>> {
        self.turns_us = self.line.turns(message_bytes, rounds)?;
        assert_eq!(self.turns_us.len(), rounds as usize);
        Ok(self.turns_us.clone())
    }

    fn stream(&mut self, message_bytes: u64, count: u64) -> Result<()> {
        let start = Instant::now();
        self.line.stream(message_bytes, count)?;
        self.streamed = (count, start.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Measures a point, and compares it with the round trips and the stream that it is made of.
fn checked_point(line: &mut dyn Line, message_bytes: u64) {
    let mut line = Recorded { line, turns_us: Vec::new(), streamed: (0, 0.0) };
    let found = point(&mut line, message_bytes, Duration::from_millis(2)).unwrap();
    assert_eq!(found.message_bytes, message_bytes);
    // The median: at most half of the round trips are shorter, and at most half are longer.
    let (turns_us, median_us) = (line.turns_us, 2.0 * found.one_way_us);
    let half = turns_us.len() / 2;
    assert!(turns_us.contains(&median_us), "{found:?}: {turns_us:?}");
    assert!(turns_us.iter().filter(|turn| **turn < median_us).count() <= half, "{found:?}: {turns_us:?}");
    assert!(turns_us.iter().filter(|turn| **turn > median_us).count() <= half, "{found:?}: {turns_us:?}");
    // The point's clock runs at least as long as the stream.
    let (count, took_s) = line.streamed;
    let payload_bytes = (message_bytes * count) as f64;
    assert!((0.0..=payload_bytes / took_s).contains(&found.bandwidth_bytes_s), "{found:?}: {count} in {took_s} s");
    assert_eq!(found.bandwidth_bytes_s > 0.0, message_bytes > 0, "{found:?}");
}

#[test]
fn a_curve_has_its_points_for_every_line() {
    let config = Config::new().token(Token::new(b"what both know"));
    let address = served(&config).to_string();
    for (asked, chosen) in
        [(Some(Transport::Tcp), Transport::Tcp), (Some(Transport::Striped), Transport::Striped), (None, Transport::Shm)]
    {
        let mut line = EdgeLine::dial(&address, &config, asked).unwrap();
        assert_eq!(line.transport(), chosen);
        [0, 1, 100_000, 3 << 20].into_iter().for_each(|bytes| checked_point(&mut line, bytes));
    }
    let mut plain = PlainLine::dial(&address, &config).unwrap();
    checked_point(&mut plain, 100_000);
}

/// A line whose round trips and streams take a given time.
struct Scripted {
    turns_us: Vec<f64>,
    message_us: u64,
}

impl Line for Scripted {
    fn turns(&mut self, _: u64, rounds: u32) -> Result<Vec<f64>> {
        Ok(self.turns_us.iter().copied().cycle().take(rounds as usize).collect())
    }

    fn stream(&mut self, _: u64, count: u64) -> Result<()> {
        std::thread::sleep(Duration::from_micros(self.message_us * count));
        Ok(())
    }
}

#[test]
fn a_point_is_half_the_median_round_trip_and_the_rate_of_a_stream() {
    let mut line = Scripted { turns_us: vec![100.0, 900.0, 200.0], message_us: 100 };
    let found = point(&mut line, 1000, Duration::from_millis(10)).unwrap();
    assert_eq!(found.one_way_us, 100.0);
    // 1000 bytes in 100 us or more: a sleep is never too short.
    assert!(found.bandwidth_bytes_s > 0.0 && found.bandwidth_bytes_s <= 10e6, "{found:?}");
}

#[test]
fn messages_of_all_sizes_return_unchanged() {
    let config = Config::new().token(Token::new(b"what both know"));
    let address = served(&config).to_string();
    let mut transports = vec![Transport::Tcp, Transport::Shm, Transport::Striped];
    if cfg!(feature = "ucx") {
        transports.push(Transport::Ucx);
    } else {
        skip(Requirement::Ucx, "this build has no feature `ucx`");
    }
    for transport in transports {
        let notifier = Notifier::new().unwrap();
        let dial = Dial {
            host: &address,
            config: &config,
            protocol: BENCH_EDGE,
            edge: &[],
            transport: Some(transport),
            notifier: &notifier,
            limit_bytes: DEFAULT_LIMIT_BYTES,
        };
        let mut connection = connect(dial).unwrap();
        assert_eq!(connection.transport(), transport);
        // Also around where a striped edge cuts messages, and where it no longer does.
        let piece = COPY_LIMIT_BYTES as usize;
        let cuts = [piece - 8 - HEADER_BYTES, piece, 2 * piece - 8 - HEADER_BYTES, 3 * piece, 4 * piece];
        let around = cuts.into_iter().flat_map(|cut| [cut - 1, cut, cut + 1]);
        for (i, bytes) in [0, 1, 8, 4095, 16 << 10, 3 << 20, 1].into_iter().chain(around).enumerate() {
            let body: Vec<u8> = (0..bytes).map(|b| (b * 7 + i) as u8).collect();
            let mut head = [i as u8; HEADER_BYTES];
            head[0] = SEND_BACK;
            connection.push(Message { head, body: body.clone().into() });
            let back = pull(&mut connection, &notifier).unwrap();
            assert_eq!(back.head, head);
            assert!(*back.body == body, "{transport}: a body of {bytes} bytes");
        }
    }
}

#[test]
fn invalid_data_ends_a_striped_edge() {
    let config = Config::new().token(Token::new(b"what both know"));
    let address = served(&config).to_string();
    let begun = |length: u64, bytes: usize| {
        let mut message = length.to_le_bytes().to_vec();
        message.resize(8 + HEADER_BYTES + bytes, 7);
        message
    };
    let limit = DEFAULT_LIMIT_BYTES;
    // The message, and whether it is returned.
    for (pieces, good) in [
        (vec![begun(3, 3)], true),
        (vec![begun(3, 1), vec![7], vec![7]], true),
        (vec![begun(limit + 1, 0)], false),
        (vec![begun(u64::MAX, 0)], false),
        (vec![begun(0, 1)], false),
        (vec![begun(2, 1), vec![7, 7]], false),
        (vec![begun(2, 1), Vec::new()], false),
        (vec![vec![0; 7 + HEADER_BYTES]], false),
        (vec![Vec::new()], false),
        // Nothing follows.
        (vec![begun(2, 1)], false),
    ] {
        let back = runtime::block_on(async {
            let mut session = Session::connect(&address, config.clone()).await.unwrap();
            request::send_request_bytes(&mut session, BENCH_EDGE, &[]).await.unwrap();
            let _granted: Result<(), String> = request::receive(&mut session).await.unwrap();
            let (mut sender, mut receiver) = session.into_split();
            for piece in &pieces {
                sender.send(piece).await.unwrap();
            }
            let mut back = vec![0; 1000];
            let received = if good {
                receiver.recv(&mut back).await
            } else {
                tokio::join!(sender.finish(), receiver.recv(&mut back)).1
            };
            received.map(|bytes| back[..bytes].to_vec())
        });
        match back {
            Ok(back) => assert!(good && back == pieces.concat(), "{pieces:?}"),
            Err(error) => assert!(!good, "{error}: {pieces:?}"),
        }
    }
}
