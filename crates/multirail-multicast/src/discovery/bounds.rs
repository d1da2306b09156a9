//! What a client can make a server dial when it asks for measurements.
//!
//! A server cannot know which hosts a broadcast will have, so it limits the addresses and the rate.

use multirail_net::sync::lock;
use multirail_proto::admission::TokenBucket;
use multirail_proto::session::Time;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Connections a second, and at once after a pause, for all clients together. A server lets as many
/// of one source in.
const DIALS_A_SECOND: u32 = 1024;
/// The most requests that are answered at a time. Others wait.
const REQUESTS: usize = 4;

/// The limits of one server.
pub(crate) struct Bounds {
    bucket: Mutex<TokenBucket>,
    /// The origin of the bucket's time.
    origin: Instant,
    requests: Semaphore,
}

impl Bounds {
    pub(crate) fn new() -> Self {
        let bucket = TokenBucket::new(DIALS_A_SECOND, DIALS_A_SECOND, Time::ZERO);
        Self { bucket: Mutex::new(bucket), origin: Instant::now(), requests: Semaphore::new(REQUESTS) }
    }

    /// Waits until a request may be answered; it is, until the permit is dropped.
    pub(super) async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        self.requests.acquire().await.ok()
    }

    /// Waits until another connection may be opened.
    pub(super) async fn dial(&self) {
        loop {
            let now = Time::after(self.origin.elapsed());
            if lock(&self.bucket).take(now, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Whether a server may open a connection to `target` for a client at `client`.
///
/// Loopback and link-local addresses lead to services that trust all who reach them, such as those of
/// a cloud's host. Only clients that reach these addresses themselves may have them measured.
pub(super) fn may_dial(client: IpAddr, target: IpAddr) -> bool {
    let (client, target) = (client.to_canonical(), target.to_canonical());
    if target.is_unspecified() || target.is_multicast() {
        return false;
    }
    match target {
        _ if target.is_loopback() => client.is_loopback(),
        IpAddr::V4(v4) if v4.is_broadcast() => false,
        _ if is_link_local(target) => client.is_loopback() || is_link_local(client),
        _ => true,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_are_there_reach_local_services() {
        for (client, target, expected) in [
            ("10.0.0.1", "10.0.0.2", true),
            ("10.0.0.1", "198.51.100.7", true),
            ("10.0.0.1", "127.0.0.1", false),
            ("10.0.0.1", "127.8.8.8", false),
            ("10.0.0.1", "::1", false),
            ("10.0.0.1", "::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", true),
            ("10.0.0.1", "169.254.169.254", false),
            ("fd00::1", "fe80::1", false),
            ("fe80::2", "fe80::1", true),
            ("169.254.1.1", "169.254.1.2", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("::1", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", false),
            ("127.0.0.1", "::", false),
            ("10.0.0.1", "255.255.255.255", false),
            ("10.0.0.1", "224.0.0.1", false),
            ("fd00::1", "ff02::1", false),
        ] {
            assert_eq!(may_dial(client.parse().unwrap(), target.parse().unwrap()), expected, "{client} to {target}");
        }
    }

    #[tokio::test]
    async fn connections_have_a_rate() {
        let bounds = Bounds::new();
        let begun = Instant::now();
        for _ in 0..DIALS_A_SECOND + 50 {
            bounds.dial().await;
        }
        // 50 beyond the capacity need 49 ms or more, whatever else the machine does.
        assert!(begun.elapsed() >= Duration::from_millis(48), "{:?}", begun.elapsed());
    }
}
