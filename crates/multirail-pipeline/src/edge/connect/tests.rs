//! Agreeing on a transport, where some do not work.

use super::arrival::{Arrival, Way};
use super::client::greet;
use super::dial::Dial;
use super::greeting::{Hello, receive};
use crate::edge::{Notifier, Transport};
use multirail_net::protocol::ProtocolName;
use multirail_net::session::{Accepted, ListenConfig, Listener};
use multirail_net::{Config, Connection, Error, Result, runtime};
use std::time::Duration;

/// The two ends of a connection.
fn connections(plaintext: bool) -> (Connection, Connection) {
    runtime::block_on(async {
        let config = Config::new().plaintext(plaintext);
        let listen = ListenConfig::new(([127, 0, 0, 1], 0), config.clone());
        let mut listener = Listener::bind(listen).await?;
        let address = listener.address();
        let dial = async {
            let stream = tokio::net::TcpStream::connect(address).await.map_err(Error::io("connecting"))?;
            Connection::open(stream, &address.to_string(), &config, ProtocolName::new("test")).await
        };
        let accept = async {
            let Accepted::Connection(new) = listener.accept().await? else { panic!("a connection") };
            Ok(new.connection)
        };
        let (dialled, accepted) = tokio::try_join!(dial, accept)?;
        for end in [&dialled, &accepted] {
            end.socket().set_nonblocking(false).map_err(Error::io("setting up a connection"))?;
        }
        Ok((dialled, accepted))
    })
    .unwrap()
}

/// The outcome on both sides, where the accepting one tries `tries`.
fn made(tries: &[Transport], plaintext: bool) -> (Result<Transport>, Result<Transport>) {
    let (stream, mut served) = connections(plaintext);
    let (offers, tries) = (tries.to_vec(), tries.to_vec());
    let dialler = std::thread::spawn(move || {
        let (config, notifier) = (Config::default(), Notifier::new().unwrap());
        let dial = Dial {
            host: "",
            config: &config,
            protocol: ProtocolName::new("test"),
            edge: b"e",
            transport: None,
            notifier: &notifier,
            limit_bytes: 1 << 20,
        };
        greet(dial, stream, offers).map(|made| made.transport())
    });
    let Hello { edge, .. } = receive(&mut served).unwrap();
    let way = Way::Greeting { stream: served, tries, machine: None };
    let accepted = Arrival { edge, way }
        .accept(&Notifier::new().unwrap(), 1 << 20, Duration::from_secs(5))
        .map(|made| made.transport());
    (dialler.join().unwrap(), accepted)
}

#[test]
fn where_the_best_does_not_work_the_next_is_taken() {
    let (dialled, accepted) = made(&[Transport::Shm, Transport::Tcp], false);
    assert_eq!((dialled.unwrap(), accepted.unwrap()), (Transport::Tcp, Transport::Tcp));
    let ucx = if cfg!(feature = "ucx") { Transport::Ucx } else { Transport::Tcp };
    let (dialled, accepted) = made(&[Transport::Ucx, Transport::Tcp], true);
    assert_eq!((dialled.unwrap(), accepted.unwrap()), (ucx, ucx));
    // UCX does not encrypt, and the two may be on different machines.
    let (dialled, accepted) = made(&[Transport::Ucx, Transport::Tcp], false);
    assert_eq!((dialled.unwrap(), accepted.unwrap()), (Transport::Tcp, Transport::Tcp));
}

#[test]
fn both_ends_are_told_why_nothing_works() {
    let (dialled, accepted) = made(&[Transport::Shm], false);
    for told in [dialled.unwrap_err().to_string(), accepted.unwrap_err().to_string()] {
        assert!(told.contains("not on one machine"), "{told}");
    }
}
