//! The kernel's interfaces that placement uses besides the BPF program.

pub(crate) mod bpffs;
pub(crate) mod hook;
pub(crate) mod netlink;
pub(crate) mod ports;
pub(crate) mod rights;
pub(crate) mod sock_diag;
pub(crate) mod sysctl;
pub(crate) mod test_run;
