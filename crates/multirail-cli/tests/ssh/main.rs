//! `multirail cp` to and from a host of ssh, with a real sshd on loopback.

mod copies;
mod ends;
mod guide;
mod lent;
mod refused;
mod sshd;
