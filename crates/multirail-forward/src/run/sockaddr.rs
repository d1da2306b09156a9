//! Addresses as the kernel's calls have them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The longest address that a call can have.
pub(super) const MAX_BYTES: usize = 128;
const IPV4_BYTES: usize = 16;
/// Without the scope, which old programs leave out.
const LEAST_IPV6_BYTES: usize = 24;

/// The address in `bytes`; `None` if it is neither IPv4 nor IPv6, or too short.
pub(super) fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match family {
        libc::AF_INET if bytes.len() >= IPV4_BYTES => {
            let address: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some((Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 if bytes.len() >= LEAST_IPV6_BYTES => {
            let address: [u8; 16] = bytes[8..24].try_into().ok()?;
            let scope =
                bytes.get(24..28).map_or(0, |scope| u32::from_ne_bytes([scope[0], scope[1], scope[2], scope[3]]));
            Some(SocketAddrV6::new(Ipv6Addr::from(address), port, 0, scope).into())
        }
        _ => None,
    }
}

/// The bytes of an address.
pub(super) fn encode(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_be_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_families_and_short_addresses_are_left_alone() {
        let v4 = encode("192.0.2.1:80".parse().unwrap());
        assert_eq!(v4[..8], [2, 0, 0, 80, 192, 0, 2, 1]);
        assert_eq!(parse(&v4[..15]), None);
        let v6 = encode("[2001:db8::1]:80".parse().unwrap());
        assert_eq!((parse(&v6[..24]).is_some(), parse(&v6[..23])), (true, None));
        assert_eq!((parse(&[1, 0, 0, 80]), parse(&[2]), parse(&[])), (None, None, None));
    }

    proptest! {
        #[test]
        fn addresses_are_read_as_they_were_written(address: std::net::IpAddr, port: u16, scope: u32) {
            let mut address = SocketAddr::new(address, port);
            if let SocketAddr::V6(v6) = &mut address {
                v6.set_scope_id(scope);
            }
            prop_assert_eq!(parse(&encode(address)), Some(address));
        }

        #[test]
        fn any_bytes_are_an_address_or_none(bytes in prop::collection::vec(any::<u8>(), 0..MAX_BYTES)) {
            parse(&bytes);
        }
    }
}
