//! A filter of rails: `eth*,10.1.0.0/16,!eth3`.

use crate::wire::Port;
use std::net::IpAddr;
use std::str::FromStr;

/// The most items in one filter; more would be a mistake.
const MAX_ITEMS: usize = 256;
/// The longest interface name that Linux allows (`IFNAMSIZ` - 1).
const MAX_NAME_BYTES: usize = 15;

/// The rails to use, from a comma-separated list of interface names with `*` and `?` (of the host
/// that dials), addresses and networks (of either end). `!` before an item excludes what it
/// matches. If all items exclude, everything else is used.
///
/// ```
/// # use multirail_proto::topology::RailFilter;
/// let filter: RailFilter = "eth*,!eth3".parse().unwrap();
/// assert!(filter.names("eth0") && !filter.names("eth3") && !filter.names("wlan0"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RailFilter {
    wanted: Vec<Item>,
    unwanted: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Name(String),
    Network { address: IpAddr, prefix_bits: u8 },
}

/// Why the text of a filter is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseFilterError {
    /// An item cannot be parsed.
    #[error("`{item}` is not {what}; write for example `eth*`, `10.1.0.0/16` or `!eth3`, separated by commas")]
    BadItem {
        /// The item as typed.
        item: String,
        /// The expected kind of item.
        what: &'static str,
    },
    /// There are too many items.
    #[error("a filter of rails has at most {MAX_ITEMS} items, not {0}")]
    TooMany(usize),
}

impl RailFilter {
    /// Whether the rail from `local` to the address `remote` passes the filter.
    pub fn admits(&self, local: &Port, remote: IpAddr) -> bool {
        let matches = |item: &Item| match item {
            Item::Name(glob) => glob_matches(glob, &local.name),
            Item::Network { address, prefix_bits } => {
                in_network(local.address, *address, *prefix_bits) || in_network(remote, *address, *prefix_bits)
            }
        };
        (self.wanted.is_empty() || self.wanted.iter().any(matches)) && !self.unwanted.iter().any(matches)
    }

    /// Whether the filter names this interface, which includes it even if it is left out by
    /// default.
    pub fn names(&self, interface: &str) -> bool {
        let matches = |item: &Item| matches!(item, Item::Name(glob) if glob_matches(glob, interface));
        self.wanted.iter().any(matches) && !self.unwanted.iter().any(matches)
    }

    /// The interface that the filter names, if it is one without `*` and `?`, and nothing else is
    /// wanted.
    pub fn only_name(&self) -> Option<&str> {
        match self.wanted.as_slice() {
            [Item::Name(name)] if !name.contains(['*', '?']) => Some(name),
            _ => None,
        }
    }

    /// Whether the filter excludes nothing.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.unwanted.is_empty()
    }
}

impl FromStr for RailFilter {
    type Err = ParseFilterError;

    fn from_str(text: &str) -> Result<RailFilter, ParseFilterError> {
        let mut filter = RailFilter::default();
        if text.trim().is_empty() {
            return Ok(filter);
        }
        let count = text.split(',').count();
        if count > MAX_ITEMS {
            return Err(ParseFilterError::TooMany(count));
        }
        for item in text.split(',').map(str::trim) {
            match item.strip_prefix('!') {
                Some(rest) => filter.unwanted.push(parse_item(rest.trim_start(), item)?),
                None => filter.wanted.push(parse_item(item, item)?),
            }
        }
        Ok(filter)
    }
}

fn parse_item(text: &str, typed: &str) -> Result<Item, ParseFilterError> {
    let bad = |what| ParseFilterError::BadItem { item: typed.to_owned(), what };
    if let Some((address, bits)) = text.split_once('/') {
        let address: IpAddr = address.parse().map_err(|_| bad("a network"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        // `parse` would take `+8`.
        let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits = bits.parse().ok().filter(|&b| digits && b <= most);
        return Ok(Item::Network { address, prefix_bits: bits.ok_or_else(|| bad("a network"))? });
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Item::Network { address, prefix_bits: if address.is_ipv4() { 32 } else { 128 } });
    }
    // Interface names may contain one colon (aliases). Two colons mean a mistyped IPv6 address.
    let looks_like_address = text.matches(':').count() > 1 || text.split('.').filter(|p| is_number(p)).count() > 2;
    let name = |c: char| c.is_ascii_graphic() && c != '!';
    let literal_bytes = text.bytes().filter(|b| *b != b'*').count();
    if text.is_empty() || looks_like_address || !text.chars().all(name) || literal_bytes > MAX_NAME_BYTES {
        return Err(bad("an interface name, an address or a network"));
    }
    Ok(Item::Name(text.to_owned()))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether `address` is in the network of `prefix_bits` around `base`. If the prefix is longer than
/// the address, which only a broken peer sends, the network is the address itself.
pub(super) fn in_network(address: IpAddr, base: IpAddr, prefix_bits: u8) -> bool {
    let differing = match (address, base) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differing = a.to_bits() ^ b.to_bits();
            return differing.leading_zeros() >= u32::from(prefix_bits).min(128);
        }
        _ => return false,
    };
    differing >= u32::from(prefix_bits).min(32)
}

/// `*` matches any characters, `?` one. It is linear except for one remembered star, so no pattern
/// is slow.
fn glob_matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    g = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, address: &str) -> Port {
        Port { name: name.into(), index: 1, address: address.parse().unwrap(), prefix_bits: 24, speed_mbit_s: 0 }
    }

    fn admits(filter: &str, name: &str, local: &str, remote: &str) -> bool {
        let filter: RailFilter = filter.parse().unwrap();
        filter.admits(&port(name, local), remote.parse().unwrap())
    }

    #[test]
    fn wanted_and_unwanted() {
        assert!(admits("", "eth0", "10.0.0.1", "10.0.0.2"));
        assert!(admits("eth*", "eth0", "10.0.0.1", "10.0.0.2"));
        assert!(!admits("eth*", "wlan0", "10.0.0.1", "10.0.0.2"));
        assert!(!admits("eth*,!eth1", "eth1", "10.0.0.1", "10.0.0.2"));
        assert!(admits("!eth1", "eth0", "10.0.0.1", "10.0.0.2"));
        assert!(!admits("! eth1", "eth1", "10.0.0.1", "10.0.0.2"));
        assert!(admits("eth0, 10.1.0.0/16", "ib0", "10.1.7.1", "10.9.0.2"));
        assert!(admits("10.1.0.0/16", "ib0", "10.9.7.1", "10.1.0.2"), "the remote end's network");
        assert!(!admits("!10.1.0.2", "ib0", "10.9.7.1", "10.1.0.2"));
        assert!(admits("fd00::/8", "ib0", "fd12::1", "fd12::2"));
        assert!(!admits("fd00::/8", "ib0", "10.0.0.1", "10.0.0.2"));
        assert!(admits("0.0.0.0/0", "ib0", "10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn invalid_filters_are_refused() {
        for bad in [
            "eth0,",
            "!",
            "!!eth0",
            ",",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0/8",
            "10.0.0.256",
            "fe80::/129",
            "fe80:::1",
            "a b",
            "averyveryverylongname",
            "eth0/1",
            "ü",
        ] {
            assert!(bad.parse::<RailFilter>().is_err(), "{bad}");
        }
        assert!("a,".repeat(MAX_ITEMS + 1).parse::<RailFilter>().is_err());
        let error = "10.0.0.0/33".parse::<RailFilter>().unwrap_err().to_string();
        assert!(error.starts_with("`10.0.0.0/33` is not a network; write for example"), "{error}");
    }

    #[test]
    fn valid_filters_are_accepted() {
        for good in
            ["eth0", "enp3s0f1np1", "eth0.100", "eth0:1", "10.0.0.1", "::1", "*", "e?h*0", "br-lan", " eth0 , !wg* "]
        {
            assert!(good.parse::<RailFilter>().is_ok(), "{good}");
        }
    }

    #[test]
    fn globs() {
        for (glob, name, is) in [
            ("*", "", true),
            ("eth?", "eth", false),
            ("eth?", "eth0", true),
            ("e*0", "eth10", true),
            ("e*0", "eth01", false),
            ("*a*b", "aXaYb", true),
            ("*a*b", "aXaYbc", false),
            ("eth0", "eth0x", false),
        ] {
            assert_eq!(glob_matches(glob, name), is, "{glob} {name}");
        }
    }

    #[test]
    fn the_only_name() {
        let only = |filter: &str| filter.parse::<RailFilter>().unwrap().only_name().map(str::to_owned);
        assert_eq!(only("eth0,!10.0.0.0/8"), Some("eth0".to_owned()));
        for several in ["", "!eth0", "eth*", "eth?", "eth0,eth1", "eth0,10.0.0.0/8", "10.0.0.1"] {
            assert_eq!(only(several), None, "{several}");
        }
    }

    #[test]
    fn edges_of_networks() {
        let at = |a: &str| a.parse::<IpAddr>().unwrap();
        assert!(in_network(at("10.0.0.255"), at("10.0.0.1"), 24));
        assert!(!in_network(at("10.0.1.0"), at("10.0.0.1"), 24));
        assert!(in_network(at("10.0.0.1"), at("10.0.0.1"), 255));
        assert!(!in_network(at("10.0.0.0"), at("10.0.0.1"), 32));
        assert!(!in_network(at("::ffff:10.0.0.1"), at("10.0.0.1"), 0));
    }
}
