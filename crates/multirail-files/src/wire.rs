//! The messages of a copy: batches of items in one direction, replies in the other.
//!
//! The sender announces each file and symbolic link, and the receiver answers which it lacks
//! ([`Item::Entry`], [`Answer`]). The sender runs ahead of the answers by a limited number of
//! announcements, so that neither side waits a round trip for a file.
//!
//! A batch is one message of at most [`BATCH_BYTES`], so many small files travel in one message
//! without a round trip for each. A medium file is an [`Item::Medium`], several [`Item::Piece`]s
//! and an [`Item::Trailer`], in one batch or more. A large file is an [`Item::Large`] that ends its
//! batch, one message or more with its content, and a trailer.

use multirail_net::error::{Error, Result};
use multirail_net::session::COPY_LIMIT_BYTES;
use multirail_tree::extra::Extra;
use multirail_tree::meta::{Meta, raw};
use multirail_tree::report::{Problem, Report};
use serde::{Deserialize, Serialize};

/// The longest batch, in bytes. The session sends messages up to this length without waiting for
/// the peer.
pub(super) const BATCH_BYTES: usize = COPY_LIMIT_BYTES as usize;
/// The longest content that goes into a batch, in bytes. The rest of a batch holds the longest
/// path.
pub(super) const MAX_SMALL_BYTES: u64 = BATCH_BYTES as u64 - 8192;

/// The longest content that is split over batches, in bytes. A message of its own would cost a
/// round trip, which is most of the time of such a file.
pub(super) const MAX_MEDIUM_BYTES: u64 = 1 << 20;

/// One item of a batch. Paths are those of [`multirail_tree::names::WirePath`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Item<'a> {
    /// A directory begins. Its entries follow.
    Directory {
        #[serde(with = "raw")]
        path: &'a [u8],
    },
    /// All entries of a directory have been sent.
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
    /// A file whose content follows in messages of their own, if the receiver wants it. It ends its
    /// batch.
    Large {
        #[serde(with = "raw")]
        path: &'a [u8],
        meta: Meta,
        retry: bool,
        total_bytes: u64,
        /// The time of the last change of the source, which no program can set.
        changed: (i64, u32),
        /// The ranges that are no holes, each with start and length; `None` if there are no holes.
        data: Option<Vec<(u64, u64)>>,
        /// The sender waits for [`Reply::go`], since the receiver may lack disk space, or may have a
        /// part of the data already.
        ask: bool,
    },
    /// The end of a file's content: its hash, or why the content is not the file's.
    Trailer(std::result::Result<[u8; 32], Problem>),
    /// An entry of the source. The receiver answers each with an [`Answer`], in order.
    Entry {
        /// How many bytes the path has in common with that of the entry before.
        shared: u64,
        /// The rest of the path.
        #[serde(with = "raw")]
        rest: &'a [u8],
        meta: Meta,
        #[serde(borrow)]
        what: What<'a>,
        /// A hash of what else belongs to the entry: see [`multirail_tree::extra::Extra`].
        extra: Option<[u8; 16]>,
    },
    /// What else belongs to the entry of the next item.
    Extra(Extra),
    /// The content of a file equals that of the receiver. Only its properties are set.
    Same {
        #[serde(with = "raw")]
        path: &'a [u8],
        meta: Meta,
    },
    /// A file that is the same file as another one that came before.
    HardLink {
        #[serde(with = "raw")]
        path: &'a [u8],
        #[serde(with = "raw")]
        to: &'a [u8],
    },
    /// Everything that was not named in such a list since the last one is to be deleted from the
    /// directory; the list follows.
    Keep {
        #[serde(with = "raw")]
        path: &'a [u8],
    },
    /// Names that stay, each after a slash.
    KeepNames(#[serde(with = "raw")] &'a [u8]),
    /// The list is complete.
    KeepEnd,
    /// All entries have been announced.
    FoundAll,
    /// An entry that is never copied.
    Skipped {
        #[serde(with = "raw")]
        path: &'a [u8],
        what: &'a str,
    },
    /// An entry that cannot be copied.
    Failed {
        #[serde(with = "raw")]
        path: &'a [u8],
        problem: Problem,
    },
    /// Asks for a reply.
    Ask,
    /// The end of the copy. It asks for the last reply.
    Finish,
}

impl<'a> Item<'a> {
    /// The path of the entry that the item is about.
    fn path(&self) -> Option<&'a [u8]> {
        match self {
            Item::Directory { path }
            | Item::DirectoryEnd { path, .. }
            | Item::Small { path, .. }
            | Item::Medium { path, .. }
            | Item::Large { path, .. }
            | Item::Skipped { path, .. }
            | Item::Failed { path, .. }
            | Item::Same { path, .. }
            | Item::HardLink { path, .. }
            | Item::Keep { path } => Some(path),
            Item::Piece(_)
            | Item::Trailer(_)
            | Item::Entry { .. }
            | Item::Extra(_)
            | Item::KeepNames(_)
            | Item::KeepEnd
            | Item::FoundAll
            | Item::Ask
            | Item::Finish => None,
        }
    }
}

/// What an [`Item::Entry`] is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum What<'a> {
    /// A file of this length, in bytes.
    File(u64),
    /// A symbolic link to this path.
    Symlink(#[serde(with = "raw")] &'a [u8]),
}

/// The receiver's answer to an [`Item::Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The receiver needs nothing more: it has the entry, or cannot store it.
    Done,
    /// The sender is to send the file.
    Send,
    /// The sender is to send the file, unless its content has this hash.
    Compare([u8; 32]),
    /// The sender is to send the properties: an [`Item::Extra`] and an [`Item::Same`].
    Properties,
}

/// What a copy does with an entry, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// A file is sent.
    Send,
    /// The content of a file is compared, and it is sent if it differs.
    Compare,
    /// Mode, times, owner or attributes are set.
    Properties,
    /// A directory is made.
    Directory,
    /// A symbolic link or a hard link is made.
    Link,
    /// The entry is deleted.
    Delete,
}

/// A reply of the receiver. It answers an [`Item::Ask`], an [`Item::Finish`] or an [`Item::Large`]
/// that asks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Reply {
    /// This reply only reports failures. The answer follows.
    pub more: bool,
    /// Why nothing can be received at all.
    pub refused: Option<String>,
    /// The content of the large file may be sent.
    pub go: bool,
    /// The data of the large file that is wanted, each range with start and length.
    pub wanted: Vec<(u64, u64)>,
    /// The answer to [`Item::Finish`].
    pub finished: bool,
    /// What was done so far.
    pub counts: Counts,
    /// Failures since the last reply.
    pub failures: Vec<WireFailure>,
    /// Answers since the last reply.
    pub answers: Vec<Answer>,
    /// What would be done, since the last reply, if nothing is to be done.
    pub changes: Vec<(Change, Vec<u8>)>,
    /// Why the receiver gives the copy up.
    pub stopped: Option<WireFailure>,
}

impl Reply {
    /// The reply as a message.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_allocvec(self).map_err(|e| Error::Protocol(format!("a reply cannot be encoded: {e}")))
    }
}

impl Item<'_> {
    /// Whether the item carries or moves content.
    pub(super) fn writes(&self) -> bool {
        matches!(
            self,
            Item::Small { .. } | Item::Medium { .. } | Item::Large { .. } | Item::Same { .. } | Item::Piece(_)
        )
    }
}

/// What the receiver did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub files: u64,
    pub bytes: u64,
    pub directories: u64,
    pub unchanged: u64,
    pub links: u64,
    pub resumed_bytes: u64,
    pub deleted: u64,
}

impl Counts {
    /// Puts the counts into a report.
    pub(super) fn report(self, report: &mut Report) {
        let Counts { files, bytes, directories, unchanged, links, resumed_bytes, deleted } = self;
        (report.files, report.bytes, report.directories) = (files, bytes, directories);
        (report.unchanged, report.links) = (unchanged, links);
        (report.resumed_bytes, report.deleted) = (resumed_bytes, deleted);
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WireFailure {
    pub path: Vec<u8>,
    /// This was the second attempt.
    pub retry: bool,
    pub problem: Problem,
}

/// A batch that is being filled.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
}

impl Batch {
    /// Adds `item` and returns whether it fits. An item that does not fit an empty batch is an
    /// error.
    pub(super) fn push(&mut self, item: &Item<'_>) -> Result<bool> {
        let before = self.bytes.len();
        self.bytes = postcard::to_extend(item, std::mem::take(&mut self.bytes))
            .map_err(|e| Error::Protocol(format!("an item cannot be encoded: {e}")))?;
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
        postcard::take_from_bytes(batch).map_err(|_| Error::Protocol("an invalid batch of files".into()))?;
    *batch = rest;
    Ok(item)
}

/// Reads arbitrary bytes as a batch and as a reply: for fuzzing. What is read encodes to what reads the
/// same, and no path that is accepted leads elsewhere.
pub(crate) fn read_any(bytes: &[u8]) {
    let mut batch = bytes;
    while !batch.is_empty() {
        let before = batch.len();
        let Ok(item) = take_item(&mut batch) else { break };
        assert!(batch.len() < before, "an item of no bytes");
        let encoded = postcard::to_allocvec(&item).expect("it was decoded");
        let again = take_item(&mut &encoded[..]).expect("it was encoded");
        assert_eq!(postcard::to_allocvec(&again).expect("it was decoded"), encoded);
        if let Some(path) = item.path() {
            check_path(path);
        }
    }
    let _ = postcard::from_bytes::<Reply>(bytes);
}

fn check_path(bytes: &[u8]) {
    use std::path::Component;
    if let Ok(path) = multirail_tree::names::check_path(bytes) {
        assert!(path.components().all(|name| matches!(name, Component::Normal(_))), "{path:?}");
    }
}
