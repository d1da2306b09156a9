//! Ethernet addresses.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An Ethernet address; displays as `02:00:00:00:01:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether it can be the address of a port: it is neither multicast or broadcast nor zero.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text is not an Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address; write for example 02:00:00:00:01:00")]
pub struct MacError;

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().ok_or(MacError)?;
            // `from_str_radix` accepts a sign.
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Mac(mac)) }
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mac: Mac = "02:00:0A:ff:01:00".parse().unwrap();
        assert_eq!(mac, Mac([2, 0, 10, 255, 1, 0]));
        assert_eq!(mac.to_string(), "02:00:0a:ff:01:00");
        for bad in
            ["", "02:00:00:00:01", "02:00:00:00:01:00:00", "2:0:0:0:1:0", "+2:00:00:00:01:00", "02-00-00-00-01-00"]
        {
            assert_eq!(bad.parse::<Mac>(), Err(MacError), "{bad}");
        }
    }

    #[test]
    fn groups_and_zero_are_not_unicast() {
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!Mac([3, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!Mac([255; 6]).is_unicast() && !Mac([0; 6]).is_unicast());
    }
}
