//! A file's properties on the wire, beside its name and content.

use serde::{Deserialize, Serialize};

/// The mode and the modification time of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits. Other bits are ignored.
    pub mode: u32,
    /// Whole seconds of the modification time since 1970; negative before.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time within its second.
    pub mtime_ns: u32,
}

/// Serializes byte strings as one block. Deserialization borrows them.
pub mod raw {
    use serde::{Deserialize, Deserializer, Serializer};

    /// For `#[serde(with = "raw")]`.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    /// For `#[serde(with = "raw")]`.
    ///
    /// # Errors
    ///
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'de [u8], D::Error> {
        <&[u8]>::deserialize(deserializer)
    }
}
