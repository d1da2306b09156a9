//! The session's machine, driven without sockets: random events against an oracle, hostile peers,
//! and thresholds.

mod close;
mod hostile;
mod pair;
mod random;
mod thresholds;
