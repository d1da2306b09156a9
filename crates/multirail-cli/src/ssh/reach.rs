//! The first connection of a copy over ssh: which addresses are tried.

use super::dialogue::Ready;
use crate::hints::error_with_hint;
use multirail::{Config, Error, KnownHosts, PublicKey, Session};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::task::JoinSet;

/// How much later each further address is tried.
const NEXT_AFTER: Duration = Duration::from_millis(250);
/// The most addresses that are tried.
const MAX_ADDRESSES: usize = 16;

/// The addresses to try, in order: those that ssh's host name has, then those that the far side
/// says. A far side does not send this host to itself.
pub(super) fn candidates(of_name: &[IpAddr], ready: &Ready) -> Vec<SocketAddr> {
    let said = ready.addresses.iter().filter(|address| !address.is_loopback() || of_name.contains(address));
    let mut all: Vec<SocketAddr> = Vec::new();
    for address in of_name.iter().chain(said) {
        let address = SocketAddr::new(address.to_canonical(), ready.port);
        if !all.contains(&address) && !address.ip().is_unspecified() {
            all.push(address);
        }
    }
    all.truncate(MAX_ADDRESSES);
    all
}

/// Opens a session with the first of the addresses where the server answers that has `key`.
pub(super) async fn connect(
    host: &str,
    candidates: &[SocketAddr],
    key: PublicKey,
    config: &Config,
) -> anyhow::Result<Session> {
    let mut trying = JoinSet::new();
    for (number, address) in candidates.iter().map(ToString::to_string).enumerate() {
        let config = config.clone().known_hosts(KnownHosts::default().with(&address, key));
        trying.spawn(async move {
            tokio::time::sleep(NEXT_AFTER * number as u32).await;
            Session::connect(&address, config).await.map_err(|error| match error {
                Error::Unreachable { cause, .. } => format!("{address}: {cause}"),
                Error::HostUnknown { .. } | Error::HostChanged { .. } => {
                    format!("{address}: a server answers that has not the key that ssh passed on")
                }
                error => format!("{address}: {error}"),
            })
        });
    }
    let mut failed = Vec::new();
    while let Some(tried) = trying.join_next().await {
        match tried {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(why)) => failed.push(why),
            Err(error) => failed.push(error.to_string()),
        }
    }
    Err(error_with_hint(
        format!("ssh reaches {host}, but no TCP connection does; tried {}", failed.join("; ")),
        "a copy has TCP connections of its own; `--ports 7000-7010` makes the other host listen on one of these ports, \
         which a firewall can let through",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use multirail::Identity;

    fn key() -> PublicKey {
        Identity::of_process().public_key()
    }

    fn ready(addresses: &[&str]) -> Ready {
        Ready { protocol: 3, key: key(), port: 99, addresses: addresses.iter().map(|a| a.parse().unwrap()).collect() }
    }

    fn shown(of_name: &[&str], said: &[&str]) -> Vec<String> {
        let of_name: Vec<IpAddr> = of_name.iter().map(|a| a.parse().unwrap()).collect();
        candidates(&of_name, &ready(said)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_name_comes_first_and_each_address_once() {
        let all = shown(&["fd00::1", "10.0.0.1"], &["::ffff:10.0.0.1", "10.0.0.2", "fd00::1"]);
        assert_eq!(all, ["[fd00::1]:99", "10.0.0.1:99", "10.0.0.2:99"]);
        assert_eq!(shown(&[], &["10.0.0.2"]), ["10.0.0.2:99"]);
    }

    #[test]
    fn only_ssh_may_say_that_the_other_host_is_this_one() {
        assert_eq!(shown(&["10.0.0.1"], &["127.0.0.1", "::1", "0.0.0.0"]), ["10.0.0.1:99"]);
        assert_eq!(shown(&["127.0.0.1"], &["127.0.0.1"]), ["127.0.0.1:99"]);
    }

    #[test]
    fn a_far_side_does_not_make_this_one_try_for_ever() {
        let many: Vec<String> = (0..100).map(|n| format!("10.0.0.{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(shown(&[], &many).len(), MAX_ADDRESSES);
    }

    #[test]
    fn what_was_tried_is_named() {
        // The listener reserves a port and is closed before the attempt.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap();
        let connected = multirail::runtime::block_on(async {
            Ok(connect("far", &[closed], key(), &Config::new()).await.map(drop))
        });
        let error = connected.unwrap().unwrap_err();
        let (text, hint) = (error.to_string(), crate::hints::hint_of(&error).unwrap());
        assert!(text.contains(&format!("{closed}: Connection refused")), "{text}");
        assert!(hint.contains("--ports"), "{hint}");
    }
}
