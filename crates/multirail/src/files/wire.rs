//! What the two ends of a copy tell each other: items in batches one way, replies the other way.
//!
//! A batch is one message of at most [`BATCH_BYTES`], so that many small files travel in one and nobody waits for any of
//! them. A medium file is an [`Item::Medium`], some [`Item::Piece`]s and an [`Item::Trailer`], in as many batches as that
//! takes. A large file is an [`Item::Large`] that ends its batch, a message that is its content, and a trailer.

use super::report::Problem;
use crate::error::{Error, Result};
use crate::session::COPY_LIMIT_BYTES;
use serde::{Deserialize, Serialize};

/// No batch is longer: that much is sent without waiting for the peer.
pub(super) const BATCH_BYTES: usize = COPY_LIMIT_BYTES as usize;
/// Content up to this length goes into a batch; leaves room for the longest path.
pub(super) const MAX_SMALL_BYTES: u64 = BATCH_BYTES as u64 - 8192;

/// Content up to this length goes into batches, piece by piece: the round trip that the end of a message of its own takes would
/// be most of the file's time.
pub(super) const MAX_MEDIUM_BYTES: u64 = 1 << 20;

/// A file's or directory's own properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Permission bits; others are ignored.
    pub mode: u32,
    pub mtime_s: i64,
    pub mtime_ns: u32,
}

/// One thing that the sender of files says. Paths are [`super::names::WirePath`]s.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Item<'a> {
    /// A directory begins: what is in it comes behind.
    Directory {
        #[serde(with = "raw")]
        path: &'a [u8],
    },
    /// All of a directory has been sent.
    DirectoryEnd {
        #[serde(with = "raw")]
        path: &'a [u8],
        meta: Meta,
    },
    /// A whole file.
    Small {
        #[serde(with = "raw")]
        path: &'a [u8],
        meta: Meta,
        retry: bool,
        hash: [u8; 32],
        #[serde(with = "raw")]
        content: &'a [u8],
    },
    /// A file whose content follows in pieces.
    Medium {
        #[serde(with = "raw")]
        path: &'a [u8],
        meta: Meta,
        retry: bool,
        total_bytes: u64,
    },
    /// The next bytes of the medium file.
    Piece(#[serde(with = "raw")] &'a [u8]),
    /// A file whose content is the next message, if the receiver wants it. Ends its batch.
    Large {
        #[serde(with = "raw")]
        path: &'a [u8],
        meta: Meta,
        retry: bool,
        total_bytes: u64,
        /// Wait for the receiver's go: it may have no room for so much.
        ask: bool,
    },
    /// The file's content is sent: its hash, or why that was not the file.
    Trailer(std::result::Result<[u8; 32], Problem>),
    /// Not copied on purpose.
    Skipped {
        #[serde(with = "raw")]
        path: &'a [u8],
        what: &'a str,
    },
    /// Cannot be copied.
    Failed {
        #[serde(with = "raw")]
        path: &'a [u8],
        problem: Problem,
    },
    /// Reply now.
    Ask,
    /// Nothing more comes. Reply, for the last time.
    Finish,
}

/// What the receiver of files says. One answers each [`Item::Ask`], [`Item::Finish`] and asking [`Item::Large`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Reply {
    /// This is only to get rid of failures; the answer is still to come.
    pub more: bool,
    /// Nothing can be received at all; says why.
    pub refused: Option<String>,
    /// The large file may come.
    pub go: bool,
    /// The answer to [`Item::Finish`].
    pub finished: bool,
    /// Files stored so far, and their bytes.
    pub files: u64,
    pub bytes: u64,
    pub directories: u64,
    /// New since the last reply.
    pub failures: Vec<WireFailure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WireFailure {
    pub path: Vec<u8>,
    /// It was the second try.
    pub retry: bool,
    pub problem: Problem,
}

/// Items on their way into one message.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
}

impl Batch {
    /// Adds `item`, unless the batch would get too long. An item that does not fit an empty batch is an error.
    pub(super) fn push(&mut self, item: &Item<'_>) -> Result<bool> {
        let before = self.bytes.len();
        self.bytes = postcard::to_extend(item, std::mem::take(&mut self.bytes))
            .map_err(|e| Error::Protocol(format!("an item that does not encode: {e}")))?;
        let fits = self.bytes.len() <= BATCH_BYTES;
        if !fits {
            self.bytes.truncate(before);
            if before == 0 {
                return Err(Error::Protocol("an item longer than a batch".to_owned()));
            }
        }
        Ok(fits)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Takes the next item from a received batch.
pub(super) fn take_item<'a>(batch: &mut &'a [u8]) -> Result<Item<'a>> {
    let (item, rest) =
        postcard::take_from_bytes(batch).map_err(|_| Error::Protocol("a batch of files that does not parse".into()))?;
    *batch = rest;
    Ok(item)
}

/// Byte strings as postcard's bytes: copied at once, borrowed when received.
pub(crate) mod raw {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'de [u8], D::Error> {
        <&[u8]>::deserialize(deserializer)
    }
}
