//! Edges to a server of this process, by everything that can carry them.

use super::*;
use crate::service::{self, Edge, ServeConfig};
use crate::session::{COPY_LIMIT_BYTES, ListenConfig};
use crate::transport::connect::{Dial, connect};
use crate::transport::{HEAD_BYTES, Message, Transport};
use crate::{Config, Session, Token};

/// A server on loopback for the time of a test.
fn served(config: &Config) -> std::net::SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    let config = ServeConfig {
        listen: ListenConfig { address: ([127, 0, 0, 1], 0).into(), insecure_no_token: false, session: config.clone() },
        root: std::env::temp_dir(),
    };
    std::thread::spawn(move || {
        service::block_on(service::serve(config, move |address| tell.send(address).unwrap())).unwrap();
    });
    told.recv().unwrap()
}

#[test]
fn a_curve_has_its_points_for_every_line() {
    let config = Config { token: Some(Token::new(b"what both know")), ..Config::default() };
    let address = served(&config).to_string();
    let effort = std::time::Duration::from_millis(2);
    let sizes = [0, 1, 100_000, 3 << 20];
    for (asked, chosen) in
        [(Some(Transport::Tcp), Transport::Tcp), (Some(Transport::Striped), Transport::Striped), (None, Transport::Shm)]
    {
        let mut line = EdgeLine::dial(&address, &config, asked).unwrap();
        assert_eq!(line.transport(), chosen);
        let points: Vec<Point> = sizes.iter().map(|bytes| point(&mut line, *bytes, effort).unwrap()).collect();
        assert!(points.iter().map(|p| p.message_bytes).eq(sizes));
        assert!(points.iter().all(|p| p.one_way_us > 0.0 && p.bandwidth_bytes_s.is_finite()));
    }
    let mut plain = PlainLine::dial(&address, config.token.as_ref()).unwrap();
    assert!(point(&mut plain, 100_000, effort).unwrap().bandwidth_bytes_s > 0.0);
}

#[test]
fn messages_of_all_sizes_come_back_as_they_were() {
    let config = Config { token: Some(Token::new(b"what both know")), ..Config::default() };
    let address = served(&config).to_string();
    let edge = Edge::Measure.encode();
    let mut transports = vec![Transport::Tcp, Transport::Shm, Transport::Striped];
    if cfg!(feature = "ucx") {
        transports.push(Transport::Ucx);
    } else {
        println!("skipped: ucx, which needs the feature `ucx` and libucx-dev");
    }
    for transport in transports {
        let bell = Bell::new().unwrap();
        let dial = Dial {
            host: &address,
            config: &config,
            edge: &edge,
            transport: Some(transport),
            bell: &bell,
            limit_bytes: DEFAULT_LIMIT_BYTES,
        };
        let mut connection = connect(dial).unwrap();
        assert_eq!(connection.transport(), transport);
        // Also around where a striped edge cuts messages, and where it no longer does.
        let piece = COPY_LIMIT_BYTES as usize;
        let cuts = [piece - 8 - HEAD_BYTES, piece, 2 * piece - 8 - HEAD_BYTES, 3 * piece, 4 * piece];
        let around = cuts.into_iter().flat_map(|cut| [cut - 1, cut, cut + 1]);
        for (i, bytes) in [0, 1, 8, 4095, 16 << 10, 3 << 20, 1].into_iter().chain(around).enumerate() {
            let body: Vec<u8> = (0..bytes).map(|b| (b * 7 + i) as u8).collect();
            let mut head = [i as u8; HEAD_BYTES];
            head[0] = SEND_BACK;
            connection.push(Message { head, body: body.clone().into() });
            let back = pull(&mut connection, &bell).unwrap();
            assert_eq!(back.head, head);
            assert!(*back.body == body, "{transport}: a body of {bytes} bytes");
        }
    }
}

#[test]
fn nonsense_on_a_striped_edge_is_its_end() {
    let config = Config { token: Some(Token::new(b"what both know")), ..Config::default() };
    let address = served(&config).to_string();
    let begun = |length: u64, bytes: usize| {
        let mut message = length.to_le_bytes().to_vec();
        message.resize(8 + HEAD_BYTES + bytes, 7);
        message
    };
    let limit = DEFAULT_LIMIT_BYTES;
    // What is sent, and whether it comes back.
    for (pieces, good) in [
        (vec![begun(3, 3)], true),
        (vec![begun(3, 1), vec![7], vec![7]], true),
        (vec![begun(limit + 1, 0)], false),
        (vec![begun(u64::MAX, 0)], false),
        (vec![begun(0, 1)], false),
        (vec![begun(2, 1), vec![7, 7]], false),
        (vec![begun(2, 1), Vec::new()], false),
        (vec![vec![0; 7 + HEAD_BYTES]], false),
        (vec![Vec::new()], false),
        // Nothing follows.
        (vec![begun(2, 1)], false),
    ] {
        let back = service::block_on(async {
            let mut session = Session::connect(&address, config.clone()).await.unwrap();
            service::send(&mut session, &service::Request::Edge(Edge::Measure.encode())).await.unwrap();
            let _granted: Result<(), String> = service::receive(&mut session).await.unwrap();
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
