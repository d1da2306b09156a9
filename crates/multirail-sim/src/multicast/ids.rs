//! Indices of links, flows and chunks.

pub(super) type LinkId = u32;
pub(super) type FlowId = u32;
pub(super) type ChunkId = u32;
