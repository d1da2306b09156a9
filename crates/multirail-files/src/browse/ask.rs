//! What a client asks for.

use serde::{Deserialize, Serialize};

/// What a client asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum BrowseRequest {
    /// Answered with an entry.
    Stat { path: Vec<u8> },
    /// Answered with pages of entries.
    List { path: Vec<u8> },
    /// Answered with the length of what follows, and with that in pieces.
    Read { path: Vec<u8>, start: u64, length: u64 },
    /// Answered with nothing.
    MakeDir { path: Vec<u8> },
    /// Answered with nothing.
    Remove { path: Vec<u8>, recursive: bool },
}
