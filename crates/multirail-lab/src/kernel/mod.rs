//! Every use of the kernel's network: `ip`, `tc`, namespaces, devices and processes.
//!
//! Functions whose name ends with `_here` act on the namespace of the calling thread.

pub(crate) mod batch;
mod command;
pub(crate) mod counters;
pub(crate) mod device;
pub(crate) mod netns;
pub(crate) mod process;
mod qdisc;
pub(crate) mod tap;

pub(crate) use command::check_commands;
pub(crate) use qdisc::try_netem_here;
