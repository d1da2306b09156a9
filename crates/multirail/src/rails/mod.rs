//! Which paths there are between two hosts.

pub mod ports;
