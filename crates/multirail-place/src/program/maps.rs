//! The program's maps, as user space reads and writes them.

use super::info::program_by_id;
use super::layout::{Config, MacKey, PeerEntry, PeerState, PortState, StreamState};
use crate::kernel::ports;
use crate::netns::Netns;
use crate::{Error, Result};
use aya::maps::{Array, HashMap, Map, MapData};
use multirail_proto::placement::hosts::HostPort;
use multirail_proto::placement::{MAX_PEERS, MAX_PORTS, Mac};
use std::os::fd::{AsFd, BorrowedFd};

/// The maps that are pinned: all but `host_state`, which only the program needs.
pub(super) const MAPS: [&str; 6] = ["config", "ports", "port_states", "peers", "peer_states", "streams"];

/// The program's maps.
pub(crate) struct Maps {
    config: Array<MapData, Config>,
    port_states: Array<MapData, PortState>,
    peers: HashMap<MapData, MacKey, PeerEntry>,
    peer_states: Array<MapData, PeerState>,
    streams: Map,
}

/// What was given to a port.
pub(crate) struct PortCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) queue_bytes: u64,
}

/// A peer, as the program knows it.
pub(crate) struct PeerRow {
    pub(crate) macs: Vec<Mac>,
    /// Bit p: port p leads to the peer.
    pub(crate) usable_ports: u32,
    pub(crate) service_ns: [u64; MAX_PORTS],
}

impl Maps {
    /// Opens the maps of the program that is attached in this network namespace: by their pins, or
    /// by the program's `id`.
    pub(crate) fn open(netns: Netns, id: u32) -> Result<Self> {
        let by_pin = || -> Result<Vec<(String, Map)>> {
            let open = |name: &str| {
                let data = MapData::from_pin(netns.pin_dir().join(name)).map_err(Error::map)?;
                Ok((name.to_owned(), Map::from_map_data(data).map_err(Error::map)?))
            };
            MAPS.iter().map(|name| open(name)).collect()
        };
        // The pins are not visible to a command with a /sys of its own, as below `ip netns exec`.
        by_pin().or_else(|_| maps_by_id(id)).and_then(Self::new)
    }

    pub(super) fn new(maps: Vec<(String, Map)>) -> Result<Self> {
        let mut maps: std::collections::HashMap<String, Map> = maps.into_iter().collect();
        let mut take = |name: &str| maps.remove(name).ok_or_else(|| Error::missing(name));
        Ok(Self {
            config: Array::try_from(take("config")?).map_err(Error::map)?,
            port_states: Array::try_from(take("port_states")?).map_err(Error::map)?,
            peers: HashMap::try_from(take("peers")?).map_err(Error::map)?,
            peer_states: Array::try_from(take("peer_states")?).map_err(Error::map)?,
            streams: take("streams")?,
        })
    }

    /// The map of streams.
    pub(crate) fn streams(&self) -> Result<BorrowedFd<'_>> {
        let has_our_size =
            |data: &MapData| data.info().is_ok_and(|info| info.value_size() as usize == size_of::<StreamState>());
        match &self.streams {
            Map::SkStorage(data) if has_our_size(data) => Ok(data.fd().as_fd()),
            _ => Err(Error::OtherVersion("its streams have another layout".into())),
        }
    }

    /// The counters of a port.
    pub(crate) fn port_counters(&self, number: usize) -> Result<PortCounters> {
        let PortState { packets, bytes, queue_bytes, .. } =
            self.port_states.get(&(number as u32), 0).map_err(Error::map)?;
        Ok(PortCounters { packets, bytes, queue_bytes })
    }

    /// The peers that the program knows.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerRow> {
        self.peers.iter().filter_map(std::result::Result::ok).map(|(_, peer)| PeerRow {
            macs: peer.macs.iter().map(|&mac| mac.into()).filter(|mac: &Mac| mac.is_unicast()).collect(),
            usable_ports: peer.usable_ports,
            service_ns: self.peer_states.get(&peer.index, 0).map(|state| state.service_ns).unwrap_or_default(),
        })
    }

    /// The ports of this host by which packets may leave: bit p stands for port p.
    pub(crate) fn usable_ports(&self) -> Result<u32> {
        Ok(self.config.get(&0, 0).map_err(Error::map)?.usable_ports)
    }

    /// Sets the ports of this host by which packets may leave.
    pub(crate) fn set_usable_ports(&mut self, usable_ports: u32) -> Result<()> {
        let config = self.config.get(&0, 0).map_err(Error::map)?;
        self.config.set(0, Config { usable_ports, ..config }, 0).map_err(Error::map)
    }

    /// Replaces the peers: the ports of each, and the mask of the ports that lead to it. A peer
    /// that stays keeps its state.
    pub(crate) fn set_peers(&mut self, peers: &[(Vec<HostPort>, u32)]) -> Result<()> {
        let known: Vec<(Mac, u32)> =
            self.peers.iter().filter_map(std::result::Result::ok).map(|(key, peer)| (key.into(), peer.index)).collect();
        let is_kept = |mac: &Mac| peers.iter().any(|(ports, _)| ports.first().is_some_and(|port| port.mac == *mac));
        let (kept, removed): (Vec<_>, Vec<_>) = known.into_iter().partition(|(mac, _)| is_kept(mac));
        for (mac, _) in removed {
            // An entry that is already gone needs no removal.
            let _ = self.peers.remove(&mac.into());
        }
        let mut used: Vec<u32> = kept.iter().map(|(_, index)| *index).collect();
        for (ports, usable_ports) in peers {
            let Some(first) = ports.first() else { continue };
            let (mut macs, mut ns_per_kib) = ([MacKey::default(); MAX_PORTS], [0; MAX_PORTS]);
            for (number, port) in ports.iter().enumerate().take(MAX_PORTS) {
                macs[number] = port.mac.into();
                ns_per_kib[number] = ports::ns_per_kib_at(port.speed_mbit_s);
            }
            let index = match kept.iter().find(|(mac, _)| *mac == first.mac) {
                Some((_, index)) => *index,
                None => {
                    // If no index is free, the map of peers is full and refuses the entry below.
                    let free = (0..MAX_PEERS as u32).find(|index| !used.contains(index)).unwrap_or(0);
                    self.peer_states.set(free, PeerState::default(), 0).map_err(Error::map)?;
                    used.push(free);
                    free
                }
            };
            let entry = PeerEntry { usable_ports: *usable_ports, index, ns_per_kib, macs };
            self.peers.insert(MacKey::from(first.mac), entry, 0).map_err(Error::map)?;
        }
        Ok(())
    }
}

fn maps_by_id(id: u32) -> Result<Vec<(String, Map)>> {
    let ids = program_by_id(id)?.map_ids().map_err(|e| Error::OtherVersion(e.to_string()))?.unwrap_or_default();
    let mut maps = Vec::new();
    for id in ids {
        let data = MapData::from_id(id).map_err(Error::map)?;
        let name = data.info().map_err(Error::map)?.name_as_str().unwrap_or_default().to_owned();
        maps.push((name, Map::from_map_data(data).map_err(Error::map)?));
    }
    Ok(maps)
}
