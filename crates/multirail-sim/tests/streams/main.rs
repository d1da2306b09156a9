//! Byte streams of a session over simulated rails.

mod memory;
mod one_way;
mod oracle;
mod overtaking;
mod random;
mod shares;
