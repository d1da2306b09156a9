//! The program in the kernel: loaded, pinned, unpinned.

use super::layout::{Config, HostState, PortEntry};
use super::maps::{MAPS, Maps};
use crate::kernel::ports::PortInfo;
use crate::kernel::{bpffs, test_run};
use crate::netns::Netns;
use crate::{Error, Result};
use aya::maps::Array;
use aya::programs::SchedClassifier;
use aya::{Btf, Ebpf, EbpfLoader};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The object compiled from `bpf/place.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/place.bpf.o"));
const PROGRAM: &str = "place";
const FIND_NET_DEVICE: &str = "find_net_device";

/// A loaded program. The kernel frees it with this value, unless it was pinned or attached.
pub(crate) struct LoadedProgram {
    object: Ebpf,
}

impl LoadedProgram {
    /// Loads the program and its helper.
    pub(crate) fn new() -> Result<Self> {
        let btf = Btf::from_sys_fs().map_err(|e| Error::Btf(Box::new(e)))?;
        let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(Error::refused)?;
        for name in [PROGRAM, FIND_NET_DEVICE] {
            classifier(&mut object, name)?.load().map_err(Error::refused)?;
        }
        Ok(Self { object })
    }

    /// Fills the maps of ports and of the configuration. `ns_per_kib` are the nominal times for 1
    /// KiB.
    pub(crate) fn fill(&mut self, config: Config, ports: &[PortInfo], ns_per_kib: &[u64]) -> Result<()> {
        let mut entries = self.array::<PortEntry>("ports")?;
        for (number, (port, &ns_per_kib)) in (0..).zip(ports.iter().zip(ns_per_kib)) {
            let entry = PortEntry { ifindex: port.ifindex, mac: port.mac.into(), ns_per_kib, ..PortEntry::default() };
            entries.set(number, entry, 0).map_err(Error::map)?;
        }
        let mut state = HostState::default();
        for (to, from) in state.ns_per_kib.iter_mut().zip(ns_per_kib) {
            *to = *from;
        }
        self.array("host_state")?.set(0, state, 0).map_err(Error::map)?;
        let program = classifier(&mut self.object, FIND_NET_DEVICE)?;
        let fd = program.fd().map_err(Error::refused)?.as_fd();
        for port in ports {
            let what = || format!("looking up port {} in the kernel", port.name);
            test_run::run_on(fd, port.ifindex).map_err(Error::io(what()))?;
        }
        // The configuration comes last: without ports in it, the program passes all packets
        // unchanged.
        self.array("config")?.set(0, config, 0).map_err(Error::map)
    }

    fn array<T: aya::Pod>(&mut self, name: &str) -> Result<Array<&mut aya::maps::MapData, T>> {
        let map = self.object.map_mut(name).ok_or_else(|| Error::missing(name))?;
        Array::try_from(map).map_err(Error::map)
    }

    /// Pins the program and its maps. A process without the right to open them by id can open pins.
    pub(crate) fn pin(&mut self, netns: Netns) -> Result<()> {
        let dir = netns.pin_dir();
        let what = || format!("pinning the program below {}", dir.display());
        fs::create_dir_all(&dir).map_err(Error::io(what()))?;
        for name in MAPS {
            let map = self.object.map_mut(name).ok_or_else(|| Error::missing(name))?;
            map.pin(dir.join(name)).map_err(|e| Error::io(what())(io::Error::other(e)))?;
        }
        let program = classifier(&mut self.object, PROGRAM)?;
        program.pin(dir.join(PROGRAM)).map_err(|e| Error::io(what())(io::Error::other(e)))
    }

    /// The program that is attached to the hook.
    pub(crate) fn program(&mut self) -> Result<BorrowedFd<'_>> {
        let program = classifier(&mut self.object, PROGRAM)?;
        Ok(program.fd().map_err(Error::refused)?.as_fd())
    }

    /// The maps, which are taken out of this value.
    pub(crate) fn take_maps(&mut self) -> Result<Maps> {
        let mut maps = Vec::new();
        for name in MAPS {
            maps.push((name.to_owned(), self.object.take_map(name).ok_or_else(|| Error::missing(name))?));
        }
        Maps::new(maps)
    }
}

fn classifier<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier> {
    let program = object.program_mut(name).ok_or_else(|| Error::missing(name))?;
    program.try_into().map_err(|e: aya::programs::ProgramError| Error::refused(e))
}

/// Removes the pins. The attached program stays.
pub(crate) fn unpin(netns: Netns) -> Result<()> {
    let dir = netns.pin_dir();
    let remove = |path: &Path, removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    };
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        remove(&entry.path(), fs::remove_file(entry.path()))?;
    }
    remove(&dir, fs::remove_dir(&dir))?;
    // This fails while other namespaces have pins there.
    let _ = fs::remove_dir(bpffs::pin_root());
    Ok(())
}
