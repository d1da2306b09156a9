//! Sets of ports.

use multirail_proto::placement::MAX_PORTS;

/// A set of ports: bit *i* stands for port *i*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortSet(pub(super) u32);

impl PortSet {
    /// Ports 0 to `count` - 1.
    pub(super) fn first(count: usize) -> Self {
        PortSet((1 << count) - 1)
    }

    pub(super) fn only(port: u32) -> Self {
        PortSet(1 << port)
    }

    pub(super) fn contains(self, port: u32) -> bool {
        port < 32 && self.0 >> port & 1 == 1
    }

    pub(super) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The members in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        (0..MAX_PORTS as u32).filter(move |port| self.contains(*port))
    }

    /// The member of index `n` modulo the number of members.
    pub(super) fn nth(self, n: u32) -> u32 {
        self.iter().nth((n % self.len()) as usize).expect("the index is below the number of members")
    }
}

impl FromIterator<u32> for PortSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ports: I) -> Self {
        PortSet(ports.into_iter().fold(0, |mask, port| mask | 1 << port))
    }
}
