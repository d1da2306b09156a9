//! Which targets a server connects to for its clients.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A port for a socket that sends nothing.
const ANY_PORT: u16 = 9;

/// The targets that clients may reach through a server.
///
/// Its text is a list of targets, separated by commas: `own`, an address or a network, each with a
/// port or a range of ports behind a colon where not all ports are meant. IPv6 has brackets:
/// `own,10.0.0.0/8:5432,[fd00::]/8:8000-8999`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    place: Place,
    ports: RangeInclusive<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The addresses of this host, loopback included.
    Own,
    /// A network.
    Network { address: IpAddr, bits: u8 },
}

/// Why a text is not an [`AllowList`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{entry:?}: write own, ADDRESS or ADDRESS/BITS, and behind a colon a port or a range of ports if not all are meant; IPv6 as [ADDRESS]/BITS"
)]
pub struct ParseAllowListError {
    entry: String,
}

impl AllowList {
    /// All ports of the host's own addresses, loopback included.
    pub fn own_addresses() -> Self {
        Self(vec![Entry { place: Place::Own, ports: 1..=u16::MAX }])
    }

    /// Whether a client may reach `target`.
    pub fn allows(&self, target: SocketAddr) -> bool {
        let address = target.ip().to_canonical();
        // Both would reach more than one host, or a host that the target does not name.
        if address.is_unspecified() || address.is_multicast() {
            return false;
        }
        self.0.iter().any(|entry| entry.ports.contains(&target.port()) && entry.place.contains(address))
    }
}

impl Place {
    fn contains(&self, asked: IpAddr) -> bool {
        match self {
            Self::Own => is_own(asked),
            Self::Network { address, bits } => prefix(*address, *bits) == prefix(asked, *bits),
        }
    }
}

/// Whether this host has the address.
///
/// To an address of its own, and to no other, the kernel sends from the same address. Whether a socket
/// can be bound to it says less: `ip_nonlocal_bind` allows any address.
pub(crate) fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || source_to(address).is_ok_and(|source| source == address)
}

/// The address from which this host sends to another one. No packet is sent.
fn source_to(address: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address, ANY_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// The first bits of an address, and which family it has.
fn prefix(address: IpAddr, bits: u8) -> (bool, u128) {
    match address {
        IpAddr::V4(v4) => (true, u128::from(u32::from(v4).checked_shr(32 - u32::from(bits)).unwrap_or(0))),
        IpAddr::V6(v6) => (false, u128::from(v6).checked_shr(128 - u32::from(bits)).unwrap_or(0)),
    }
}

impl FromStr for AllowList {
    type Err = ParseAllowListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let entry = |text: &str| parse_entry(text.trim()).ok_or_else(|| ParseAllowListError { entry: text.to_owned() });
        text.split(',').map(entry).collect::<Result<_, _>>().map(Self)
    }
}

fn parse_entry(text: &str) -> Option<Entry> {
    let (place, ports) = match text.rfind(':').filter(|colon| !text[*colon..].contains(']')) {
        Some(colon) => (&text[..colon], parse_ports(&text[colon + 1..])?),
        None => (text, 1..=u16::MAX),
    };
    let place = match place {
        "own" => Place::Own,
        network => parse_network(network)?,
    };
    Some(Entry { place, ports })
}

fn parse_network(text: &str) -> Option<Place> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address = match address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => IpAddr::V6(v6.parse().ok()?),
        None => IpAddr::V4(address.parse().ok()?),
    };
    let most_bits = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most_bits), |bits| bits.parse().ok().filter(|bits| *bits <= most_bits))?;
    Some(Place::Network { address, bits })
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (1 <= first && first <= last).then_some(first..=last)
}

impl fmt::Display for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Entry { place, ports }) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match place {
                Place::Own => f.write_str("own")?,
                Place::Network { address: IpAddr::V4(address), bits } => write!(f, "{address}/{bits}")?,
                Place::Network { address: IpAddr::V6(address), bits } => write!(f, "[{address}]/{bits}")?,
            }
            match (*ports.start(), *ports.end()) {
                (1, u16::MAX) => {}
                (first, last) if first == last => write!(f, ":{first}")?,
                (first, last) => write!(f, ":{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allows(list: &str, target: &str) -> bool {
        list.parse::<AllowList>().unwrap().allows(target.parse().unwrap())
    }

    #[test]
    fn targets_are_allowed_just_inside_and_not_just_outside() {
        let list = "10.1.0.0/16:5432,192.0.2.7:80-90,[fd00::]/8";
        for inside in ["10.1.0.0:5432", "10.1.255.255:5432", "192.0.2.7:80", "192.0.2.7:90", "[fdff::1]:1"] {
            assert!(allows(list, inside), "{inside}");
        }
        for outside in ["10.2.0.0:5432", "10.1.0.1:5433", "192.0.2.7:79", "192.0.2.7:91", "192.0.2.6:80", "[fe00::1]:1"]
        {
            assert!(!allows(list, outside), "{outside}");
        }
        assert!(allows("0.0.0.0/0", "198.51.100.1:1") && !allows("0.0.0.0/0", "[2001:db8::1]:1"));
    }

    #[test]
    fn own_addresses_are_those_of_this_host_and_no_others() {
        let own = AllowList::own_addresses();
        for target in ["127.0.0.1:22", "127.1.2.3:22", "[::1]:22", "[::ffff:127.0.0.1]:22"] {
            assert!(own.allows(target.parse().unwrap()), "{target}");
        }
        for target in ["192.0.2.1:22", "[2001:db8::1]:22", "0.0.0.0:22", "[::]:22", "224.0.0.1:22", "[ff02::1]:22"] {
            assert!(!own.allows(target.parse().unwrap()), "{target}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for wrong in ["", "own,", "10.0.0.0/33", "10.0.0.0:0", "10.0.0.0:9-8", "fd00::1", "[10.0.0.1]", "host", "own:x"]
        {
            let error = wrong.parse::<AllowList>().unwrap_err().to_string();
            assert!(error.contains("write own, ADDRESS"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(
            address: IpAddr, bits in 0..=32u8, first in 1..=u16::MAX, more in 0..=u16::MAX, own: bool,
        ) {
            let place = if own { Place::Own } else { Place::Network { address, bits } };
            let list = AllowList(vec![Entry { place, ports: first..=first.saturating_add(more) }]);
            prop_assert_eq!(list.to_string().parse::<AllowList>(), Ok(list));
        }
    }
}
