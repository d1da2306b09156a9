//! A port of a lab, before it is created.

use crate::plan::shaping::Egress;
use crate::spec::rate::Rate;

/// A port of a host, a switch or a router: one end of a veth pair, or a TAP device of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedPort {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The interface index, which must differ at the two ends of a pair. If both ends have the same
    /// index, the kernel takes the port for one without a peer, and may handle a change of its
    /// carrier a second late.
    pub(crate) index: usize,
    /// The rate of the packets that leave here. `None` means no limit.
    pub(crate) rate: Option<Rate>,
    /// How the kernel shapes the packets that leave here. `None` for a port without a rate, and for
    /// one of the relay, which shapes the packets itself.
    pub(crate) egress: Option<Egress>,
    /// Whether the port belongs to a host or a router, and thus has addresses.
    pub(crate) is_host: bool,
}
