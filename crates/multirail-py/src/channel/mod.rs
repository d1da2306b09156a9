//! Buffers between two processes of one host, in memory that both share. Nothing is copied.

mod memory;
pub(crate) mod slots;
