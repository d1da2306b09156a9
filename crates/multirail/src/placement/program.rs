//! The program and its maps in the kernel: loaded, pinned, found again.

use super::layout::{Config, HostState, MacKey, Peer, PeerState, Port, PortState, Stream};
use super::ports::{self, PortInfo};
use super::state::{self, Place};
use super::test_run;
use super::{Error, Result};
use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::{ProgramInfo, SchedClassifier, loaded_programs};
use aya::{Btf, Ebpf, EbpfLoader};
use multirail_proto::placement::hosts::HostPort;
use multirail_proto::placement::{MAX_PEERS, MAX_PORTS, Mac};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Compiled from `bpf/place.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/place.bpf.o"));
const MAPS: [&str; 6] = ["config", "ports", "port_states", "peers", "peer_states", "streams"];
const PROGRAM: &str = "place";

/// What has just been loaded, and is gone with this value unless it is pinned or attached.
pub(super) struct Loaded {
    object: Ebpf,
}

impl Loaded {
    /// Loads both programs.
    pub(super) fn new() -> Result<Self> {
        let btf = Btf::from_sys_fs().map_err(|e| Error::Btf(e.to_string()))?;
        let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(|e| Error::Refused(chain(&e)))?;
        for name in [PROGRAM, "learn"] {
            classifier(&mut object, name)?.load().map_err(|e| Error::Refused(chain(&e)))?;
        }
        Ok(Self { object })
    }

    /// Fills the tables of ports and of settings, and has the kernel tell where it keeps each port.
    pub(super) fn fill(&mut self, config: Config, ports: &[PortInfo], ns_per_kib: &[u64]) -> Result<()> {
        let map = self.object.map_mut("ports").ok_or_else(|| missing("ports"))?;
        let mut table = Array::<_, Port>::try_from(map).map_err(map_error)?;
        for (number, (port, &ns_per_kib)) in (0..).zip(ports.iter().zip(ns_per_kib)) {
            let entry = Port { ifindex: port.ifindex, unused: 0, mac: port.mac.into(), dev: 0, ns_per_kib };
            table.set(number, entry, 0).map_err(map_error)?;
        }
        let mut state = HostState::default();
        for (to, from) in state.ns_per_kib.iter_mut().zip(ns_per_kib) {
            *to = *from;
        }
        let map = self.object.map_mut("host_state").ok_or_else(|| missing("host_state"))?;
        Array::<_, HostState>::try_from(map).map_err(map_error)?.set(0, state, 0).map_err(map_error)?;
        let learn = classifier(&mut self.object, "learn")?;
        let fd = learn.fd().map_err(|e| Error::Refused(chain(&e)))?.as_fd();
        for port in ports {
            test_run::run_on(fd, port.ifindex)
                .map_err(Error::io(format!("looking up port {} in the kernel", port.name)))?;
        }
        // Last: with no ports in it, the program leaves all packets alone.
        let map = self.object.map_mut("config").ok_or_else(|| missing("config"))?;
        Array::<_, Config>::try_from(map).map_err(map_error)?.set(0, config, 0).map_err(map_error)
    }

    /// Gives everything names in the file system, so that it is found again by a process without the right to look it up by number.
    pub(super) fn pin(&mut self, place: Place) -> Result<()> {
        let dir = place.pins();
        let pin = || format!("pinning the program below {} (who may write there may pin)", dir.display());
        fs::create_dir_all(&dir).map_err(Error::io(pin()))?;
        for name in MAPS {
            let map = self.object.map_mut(name).ok_or_else(|| missing(name))?;
            map.pin(dir.join(name)).map_err(|e| Error::io(pin())(io::Error::other(chain(&e))))?;
        }
        let program = classifier(&mut self.object, PROGRAM)?;
        program.pin(dir.join(PROGRAM)).map_err(|e| Error::io(pin())(io::Error::other(chain(&e))))
    }

    pub(super) fn program(&mut self) -> Result<BorrowedFd<'_>> {
        let program = classifier(&mut self.object, PROGRAM)?;
        Ok(program.fd().map_err(|e| Error::Refused(chain(&e)))?.as_fd())
    }

    pub(super) fn tables(&mut self) -> Result<Tables> {
        let mut maps = Vec::new();
        for name in MAPS {
            maps.push((name.to_owned(), self.object.take_map(name).ok_or_else(|| missing(name))?));
        }
        Tables::new(maps)
    }
}

fn classifier<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier> {
    let program = object.program_mut(name).ok_or_else(|| missing(name))?;
    program.try_into().map_err(|e| Error::Refused(chain(&e)))
}

/// The program's maps.
pub(super) struct Tables {
    config: Array<MapData, Config>,
    pub(super) port_states: Array<MapData, PortState>,
    pub(super) peers: HashMap<MapData, MacKey, Peer>,
    pub(super) peer_states: Array<MapData, PeerState>,
    streams: Map,
}

impl Tables {
    /// Of the program that is attached in this network namespace: by their names, or by the program's number `id`.
    pub(super) fn open(place: Place, id: u32) -> Result<Self> {
        let by_name = || -> Result<Vec<(String, Map)>> {
            let open =
                |name: &str| Ok((name.to_owned(), MapData::from_pin(place.pins().join(name)).map_err(map_error)?));
            MAPS.iter()
                .map(|name| open(name).and_then(|(n, data)| Ok((n, Map::from_map_data(data).map_err(map_error)?))))
                .collect()
        };
        // Where a command has a /sys of its own, as below `ip netns exec`, names are not to be seen.
        by_name().or_else(|_| by_id(id)).and_then(Self::new)
    }

    fn new(maps: Vec<(String, Map)>) -> Result<Self> {
        let mut maps: std::collections::HashMap<String, Map> = maps.into_iter().collect();
        let mut take = |name: &str| maps.remove(name).ok_or_else(|| missing(name));
        Ok(Self {
            config: Array::try_from(take("config")?).map_err(map_error)?,
            port_states: Array::try_from(take("port_states")?).map_err(map_error)?,
            peers: HashMap::try_from(take("peers")?).map_err(map_error)?,
            peer_states: Array::try_from(take("peer_states")?).map_err(map_error)?,
            streams: take("streams")?,
        })
    }

    /// The map of streams, for whoever lists it.
    pub(super) fn streams(&self) -> Result<BorrowedFd<'_>> {
        match &self.streams {
            Map::SkStorage(data) if data.info().is_ok_and(|info| info.value_size() as usize == size_of::<Stream>()) => {
                Ok(data.fd().as_fd())
            }
            _ => Err(Error::OtherVersion("its streams have another form".into())),
        }
    }

    /// A bit for each port of this host by which packets may leave.
    pub(super) fn usable(&self) -> Result<u32> {
        Ok(self.config.get(&0, 0).map_err(map_error)?.usable)
    }

    pub(super) fn set_usable(&mut self, usable: u32) -> Result<()> {
        let config = self.config.get(&0, 0).map_err(map_error)?;
        self.config.set(0, Config { usable, ..config }, 0).map_err(map_error)
    }

    /// Makes the table of peers this one: of each its ports, and a bit for each that leads there.
    pub(super) fn set_peers(&mut self, peers: &[(Vec<HostPort>, u32)]) -> Result<()> {
        let known: Vec<(MacKey, Peer)> = self.peers.iter().filter_map(std::result::Result::ok).collect();
        let stays =
            |key: &MacKey| peers.iter().any(|(ports, _)| ports.first().is_some_and(|port| port.mac == Mac::from(*key)));
        for (key, _) in known.iter().filter(|(key, _)| !stays(key)) {
            // Gone already is as good.
            let _ = self.peers.remove(key);
        }
        let mut numbers: Vec<u32> = known.iter().filter(|(key, _)| stays(key)).map(|(_, peer)| peer.number).collect();
        for (ports, usable) in peers {
            let Some(first) = ports.first() else { continue };
            let (mut macs, mut ns_per_kib) = ([MacKey::default(); MAX_PORTS], [0; MAX_PORTS]);
            for (number, port) in ports.iter().enumerate().take(MAX_PORTS) {
                macs[number] = port.mac.into();
                ns_per_kib[number] = ports::ns_per_kib_at(port.speed_mbit_s);
            }
            let key = MacKey::from(first.mac);
            let number = match known.iter().find(|(known, _)| *known == key) {
                Some((_, peer)) => peer.number,
                None => {
                    // The least that nobody has. More hosts than the tables hold are refused by the table of peers.
                    let free = (0..MAX_PEERS as u32).find(|number| !numbers.contains(number)).unwrap_or(0);
                    self.peer_states.set(free, PeerState::default(), 0).map_err(map_error)?;
                    numbers.push(free);
                    free
                }
            };
            self.peers.insert(key, Peer { usable: *usable, number, ns_per_kib, macs }, 0).map_err(map_error)?;
        }
        Ok(())
    }
}

fn by_id(id: u32) -> Result<Vec<(String, Map)>> {
    let program = program_by_id(id)?;
    let ids = program.map_ids().map_err(|e| Error::OtherVersion(chain(&e)))?.unwrap_or_default();
    let mut maps = Vec::new();
    for id in ids {
        let data = MapData::from_id(id).map_err(map_error)?;
        let name = data.info().map_err(map_error)?.name_as_str().unwrap_or_default().to_owned();
        maps.push((name, Map::from_map_data(data).map_err(map_error)?));
    }
    Ok(maps)
}

fn program_by_id(id: u32) -> Result<ProgramInfo> {
    let found = loaded_programs().filter_map(std::result::Result::ok).find(|program| program.id() == id);
    found
        .ok_or_else(|| Error::Rights("CAP_SYS_ADMIN (to find the program, whose names are not to be seen here)".into()))
}

/// How long the program ran, and how often, where the kernel counts it (the sysctl `kernel.bpf_stats_enabled`).
pub(super) fn run_time_ns_and_count(id: u32) -> Option<(u64, u64)> {
    let info = program_by_id(id).ok()?;
    Some((info.run_time().as_nanos() as u64, info.run_count()))
}

/// Takes the names away. What is attached stays.
pub(super) fn unpin(place: Place) -> Result<()> {
    let dir = place.pins();
    let remove = |path: &Path, done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    };
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        remove(&entry.path(), fs::remove_file(entry.path()))?;
    }
    remove(&dir, fs::remove_dir(&dir))?;
    // Only if it is empty: other namespaces have theirs.
    let _ = fs::remove_dir(state::pins_root());
    Ok(())
}

fn missing(name: &str) -> Error {
    Error::OtherVersion(format!("it has no `{name}`"))
}

pub(super) fn map_error(error: aya::maps::MapError) -> Error {
    match error {
        aya::maps::MapError::InvalidValueSize { .. } | aya::maps::MapError::InvalidKeySize { .. } => {
            Error::OtherVersion(error.to_string())
        }
        other => Error::io("a map of the program")(io::Error::other(chain(&other))),
    }
}

/// An error and its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
