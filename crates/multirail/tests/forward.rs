//! What a server of all products tells clients that want to reach a target through it.

mod common;

use common::{bounded, plaintext, runtime};
use multirail::forward::{AllowList, ForwardError, Forwarder};
use multirail::server::Server;
use multirail::session::ListenConfig;

/// The reason with which a client is refused, if it is.
fn refusal(set: impl FnOnce(Server) -> Server) -> Option<String> {
    runtime().block_on(bounded("an answer", 30, async {
        let listen = ListenConfig::new(([127, 0, 0, 1], 0), plaintext());
        let server = set(Server::new(listen, std::env::temp_dir()));
        let (ready, address) = tokio::sync::oneshot::channel();
        tokio::spawn(server.serve(|address| ready.send(address).unwrap()));
        let address = address.await.unwrap().to_string();
        match Forwarder::connect(&address, plaintext()).await {
            Ok(_) => None,
            Err(ForwardError::Refused { why }) => Some(why),
            Err(error) => panic!("{error}"),
        }
    }))
}

#[test]
fn a_server_that_reaches_nothing_for_clients_says_why() {
    assert_eq!(refusal(|server| server).unwrap(), "it was started without targets");
    assert_eq!(refusal(|server| server.not_forwarding("ask Ann")).unwrap(), "ask Ann");
    assert_eq!(refusal(|server| server.forwarding(AllowList::own_addresses())), None);
}
