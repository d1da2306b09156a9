//! Sessions over loopback: messages arrive with every strategy.

use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Session, Strategy};
use std::num::NonZero;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn pair(config: Config) -> (Session, Session, Listener) {
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), config.clone());
    let mut listener = Listener::bind(listen).await.unwrap();
    let address = listener.address().to_string();
    // The server must run so that the client receives its ports.
    let server = async {
        let Accepted::Session(server) = listener.accept().await.unwrap() else { panic!("a session") };
        server.start()
    };
    let (client, server) = tokio::join!(Session::connect(&address, config), server);
    (client.unwrap(), server, listener)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 256 * 7) as u8).collect()
}

#[test]
fn messages_of_all_sizes_and_strategies_come_back() {
    runtime().block_on(async {
        for &strategy in Strategy::ALL {
            for channels_per_rail in [1u32, 2, 3, 4] {
                let config = Config::new().strategy(strategy).channels(NonZero::new(channels_per_rail).unwrap());
                let (mut client, mut server, _listener) = pair(config).await;
                let sizes = [0, 1, 1000, 4096, 8192, 65536, 65537, 300_000, 3_000_000];
                let echo = async {
                    let mut buffer = vec![0; 4_000_000];
                    for _ in sizes {
                        let n = server.recv(&mut buffer).await.unwrap();
                        server.send(&buffer[..n]).await.unwrap();
                    }
                };
                let ask = async {
                    let mut buffer = vec![0; 4_000_000];
                    for size in sizes {
                        let message = pattern(size);
                        client.send(&message).await.unwrap();
                        let n = client.recv(&mut buffer).await.unwrap();
                        assert!(buffer[..n] == message[..], "{strategy} {channels_per_rail} {size}");
                    }
                };
                tokio::time::timeout(std::time::Duration::from_secs(20), async { tokio::join!(echo, ask) })
                    .await
                    .unwrap_or_else(|_| panic!("{strategy} on {channels_per_rail} channels is stuck"));
            }
        }
    });
}
