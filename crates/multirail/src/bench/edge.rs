//! What edges of pipelines are measured against.

use super::curve::pull;
use crate::error::Result;
use crate::transport::connect::Arrival;
use crate::transport::{Bell, DEFAULT_LIMIT_BYTES};

/// Sends every message back, until the peer closes.
pub(crate) fn echo_edge(arrival: Arrival) -> Result<()> {
    let bell = Bell::new().map_err(crate::Error::io("making a bell"))?;
    let mut connection = arrival.accept(&bell, DEFAULT_LIMIT_BYTES)?;
    loop {
        let message = pull(&mut connection, &bell)?;
        connection.push(message);
        connection.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::curve::{PlainLine, curve, point};
    use crate::service::{self, Edge, ServeConfig};
    use crate::session::ListenConfig;
    use crate::transport::connect::{Dial, connect};
    use crate::transport::{HEAD_BYTES, Message, Transport};
    use crate::{Config, Token};

    /// A server on loopback for the time of a test.
    fn served(config: &Config) -> std::net::SocketAddr {
        let (tell, told) = std::sync::mpsc::channel();
        let config = ServeConfig {
            listen: ListenConfig {
                address: ([127, 0, 0, 1], 0).into(),
                insecure_no_token: false,
                session: config.clone(),
            },
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
        for (asked, chosen) in [
            (Some(Transport::Tcp), Transport::Tcp),
            (Some(Transport::Striped), Transport::Striped),
            (None, Transport::Shm),
        ] {
            let (transport, points) = curve(&address, &config, asked, &sizes, effort).unwrap();
            assert_eq!(transport, chosen);
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
        let edge = Edge::Echo.encode();
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
            for (i, bytes) in [0, 1, 8, 4095, 16 << 10, 65537, 3 << 20, 1].into_iter().enumerate() {
                let body: Vec<u8> = (0..bytes).map(|b| (b * 7 + i) as u8).collect();
                connection.push(Message { head: [i as u8; HEAD_BYTES], body: body.clone().into() });
                let back = pull(&mut connection, &bell).unwrap();
                assert_eq!(back.head, [i as u8; HEAD_BYTES]);
                assert!(*back.body == body, "{transport}: a body of {bytes} bytes");
            }
        }
    }
}
