//! A lab that is up: how it is created, changed, inspected and removed.
//!
//! [`handle`] has what users call most. Changes of rails, ports and links are in files of their own
//! and share [`change`]. [`state`] is the file that other processes read.

mod change;
mod clusters;
mod configure;
pub(crate) mod handle;
pub(crate) mod lifecycle;
pub(crate) mod links;
pub(crate) mod ports;
mod rails;
mod start_relay;
pub(crate) mod state;
