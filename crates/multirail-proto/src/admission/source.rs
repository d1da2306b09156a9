//! Peers as limits count them.

use std::net::{IpAddr, Ipv4Addr};

/// A source of connections: an IPv4 address, or an IPv6 network of 64 bits. A host can use every
/// address of such a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An IPv4 address, also if it is mapped to IPv6.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6([u8; 8]),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        address.parse::<IpAddr>().expect("an address").into()
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_a_network_of_64_bits() {
        assert_eq!(source("10.0.0.1"), source("::ffff:10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_eq!(source("fd00:0:0:1::1"), source("fd00:0:0:1:ffff:ffff:ffff:ffff"));
        assert_ne!(source("fd00:0:0:1::1"), source("fd00:0:0:2::1"));
    }
}
