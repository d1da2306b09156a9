//! What a lab consists of, as data: namespaces, ports, addresses and queues.
//!
//! Everything here follows from the topology alone. Nothing asks the kernel.

pub(crate) mod addresses;
pub(crate) mod cluster;
pub(crate) mod lab_plan;
pub(crate) mod names;
pub(crate) mod port;
pub(crate) mod relay;
pub(crate) mod shaping;
pub(crate) mod switches;
