//! Where a host keeps the data of a broadcast, and how the data is described.

mod api;
mod error;
mod files;
pub(crate) mod manifest;
pub(crate) mod memory;
pub(crate) mod source;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod tree;

pub(crate) use api::Store;
pub(crate) use error::StoreError;
pub use manifest::Manifest;
pub(crate) use tree::{Destination, TreeOptions, TreeStore};
