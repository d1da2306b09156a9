//! `multirail place` between the hosts of a lab, as a user runs it.

mod exchange;
mod filters;
mod net;
mod refused;
mod restore;
mod rights;
mod snapshot;
mod streams;
mod transfer;
