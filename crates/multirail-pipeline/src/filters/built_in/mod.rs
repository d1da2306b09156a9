//! The kinds of filters that come with multirail.

mod compute;
mod generate;
mod read;
mod relay;
mod to_all;
mod write;

use super::registry::Filters;
use multirail_tree::root::Root;
use std::path::Path;
use std::sync::Arc;

/// Why a host makes no filters of the kind `program` by default.
const NO_PROGRAMS: &str = "this host runs no programs for others";

impl Filters {
    /// The kinds that come with multirail. Files are read and written only below `root`.
    ///
    /// | kind | parameters | what it does |
    /// | --- | --- | --- |
    /// | `generate` | `bytes`, `chunk_bytes` | writes `bytes` bytes of a pattern; each copy writes a part |
    /// | `read` | `file` | writes a file's chunks; each copy writes a part |
    /// | `write` | `file` | writes all buffers to a file, in the order of their tags |
    /// | `compute` | `ns_per_byte`, `slow` | computes on each buffer, and passes it on |
    /// | `pass` | | passes buffers on |
    /// | `discard` | | reads buffers and drops them |
    ///
    /// Sizes are numbers of bytes, or text like `"64k"`. The tags of a source are the numbers of
    /// the chunks.
    pub fn built_in(root: &Path) -> Self {
        let mut filters = Self::for_root(root.into());
        filters.built_in = Some(root.to_owned());
        filters
    }

    /// As [`Filters::built_in`].
    pub(super) fn for_root(root: Root) -> Self {
        let root = Arc::new(root);
        let (for_read, for_write) = (root.clone(), root);
        Self::none()
            .with("generate", generate::Generate::new)
            .with("read", move |parameters, copy| read::Read::new(parameters, copy, for_read.clone()))
            .with("write", move |parameters, copy| write::Write::new(parameters, copy, for_write.clone()))
            .with("compute", compute::Compute::new)
            .with("pass", relay::pass)
            .with("discard", relay::discard)
            .without("program", NO_PROGRAMS)
    }
}

#[cfg(test)]
mod tests;
