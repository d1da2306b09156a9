//! The names by which a client selects a protocol of a server.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The length of a name on the wire, in bytes.
const NAME_BYTES: usize = 16;

/// The name of a protocol that a server may serve. The length is fixed, so that an unauthenticated
/// peer cannot make the server allocate memory for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProtocolName([u8; NAME_BYTES]);

impl ProtocolName {
    /// The protocol called `name`: at most 16 bytes of ASCII.
    ///
    /// # Panics
    ///
    /// If the name is longer. In a constant this fails the build.
    pub const fn new(name: &str) -> Self {
        assert!(name.len() <= NAME_BYTES && name.is_ascii(), "a protocol's name is at most 16 bytes of ASCII");
        let mut bytes = [0; NAME_BYTES];
        let mut at = 0;
        while at < name.len() {
            bytes[at] = name.as_bytes()[at];
            at += 1;
        }
        Self(bytes)
    }

    /// The length of every name on the wire, in bytes.
    pub(crate) const BYTES: usize = NAME_BYTES;

    pub(crate) fn to_bytes(self) -> [u8; NAME_BYTES] {
        self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; NAME_BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The peer chose the bytes: control characters must not reach a terminal.
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        write!(f, "{}", self.0[..length].escape_ascii())
    }
}

impl fmt::Debug for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtocolName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_full_length_fit_and_are_printed_escaped() {
        assert_eq!(ProtocolName::new("0123456789abcdef").to_string(), "0123456789abcdef");
        assert_eq!(ProtocolName::new("files").to_string(), "files");
        assert_eq!(ProtocolName::from_bytes([0x1b; 16]).to_string(), "\\x1b".repeat(16));
    }

    #[test]
    #[should_panic(expected = "at most 16 bytes")]
    fn a_longer_name_is_refused() {
        ProtocolName::new("0123456789abcdefg");
    }
}
