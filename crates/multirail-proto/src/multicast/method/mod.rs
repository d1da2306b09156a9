//! The multicast methods as state machines: one [`Node`](super::Node) a host.

pub(crate) mod adaptive;
pub mod bittorrent;
pub(crate) mod mob;
mod nodes;
pub(crate) mod planned;
pub mod sync;
#[cfg(test)]
mod tests;

pub use nodes::Nodes;
pub(crate) use nodes::early_calls;
