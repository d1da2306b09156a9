//! The learning switch of a relayed rail of more than two hosts.

use crate::relay::segment::VNET_BYTES;

/// The most addresses that a switch learns. It exceeds the number of hosts on a rail, because hosts
/// may have bridges.
const ADDRESSES_MAX: usize = 4096;

pub(crate) struct RelaySwitch {
    /// The ports of the switch: the index of the host's port and that of the downlink to it.
    pub(crate) members: Vec<(usize, usize)>,
    /// Learned addresses, each with the index of a member.
    addresses: Vec<([u8; 6], usize)>,
}

impl RelaySwitch {
    pub(crate) fn new() -> Self {
        Self { members: Vec::new(), addresses: Vec::with_capacity(ADDRESSES_MAX) }
    }

    /// Learns the source address of a packet that arrives from a member, and calls `to` with each
    /// downlink that the packet goes to.
    pub(crate) fn forward(&mut self, from: usize, parts: &[&[u8]; 2], mut to: impl FnMut(usize)) {
        let Some(ethernet) = parts[0].get(VNET_BYTES..VNET_BYTES + 12) else { return };
        let (target, source) = ethernet.split_at(6);
        if let Some((_, member)) = self.addresses.iter_mut().find(|(address, _)| address == source) {
            *member = from;
        } else if self.addresses.len() < ADDRESSES_MAX {
            let mut address = [0; 6];
            address.copy_from_slice(source);
            self.addresses.push((address, from));
        }
        let is_group = target[0] & 1 != 0;
        let known = self.addresses.iter().find(|(address, _)| !is_group && address == target);
        match known {
            Some(&(_, member)) if member == from => {}
            Some(&(_, member)) => to(self.members[member].1),
            None => {
                for (member, &(_, downlink)) in self.members.iter().enumerate() {
                    if member != from {
                        to(downlink);
                    }
                }
            }
        }
    }
}
