//! What edges of pipelines are measured against.

use crate::error::Result;
use crate::transport::connect::Arrival;
use crate::transport::{Bell, Connection, DEFAULT_LIMIT_BYTES, wait};
use std::sync::Arc;

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

/// The next message. What is still to be sent goes on meanwhile.
fn pull(connection: &mut Box<dyn Connection>, bell: &Arc<Bell>) -> Result<crate::transport::Message> {
    loop {
        let seen = bell.seen();
        connection.flush()?;
        if let Some(message) = connection.pull()? {
            return Ok(message);
        }
        wait(bell, seen, std::iter::once(&mut *connection), None)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{self, Edge, ServeConfig};
    use crate::session::ListenConfig;
    use crate::transport::connect::{Dial, connect};
    use crate::transport::{Message, Transport};
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
    fn messages_of_all_sizes_come_back_as_they_were() {
        let config = Config { token: Some(Token::new(b"what both know")), ..Config::default() };
        let address = served(&config).to_string();
        let edge = postcard::to_allocvec(&Edge::Echo).unwrap();
        for transport in [Transport::Tcp] {
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
            for (i, bytes) in [0, 1, 8, 4095, 16 << 10, 65537, 3 << 20, 1].into_iter().enumerate() {
                let body: Vec<u8> = (0..bytes).map(|b| (b * 7 + i) as u8).collect();
                connection.push(Message { head: [i as u8; 24], body: body.clone().into() });
                let back = pull(&mut connection, &bell).unwrap();
                assert_eq!(back.head, [i as u8; 24]);
                assert!(*back.body == body, "{transport}: a body of {bytes} bytes");
            }
        }
    }
}
