//! Whether this host has a working RDMA device, such as InfiniBand or RoCE.

use std::path::Path;

/// The folder in which the kernel lists RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";
/// Prefix of the state of a port that carries traffic: `IB_PORT_ACTIVE`.
const ACTIVE: &str = "4:";

/// Whether UCX may be chosen without being asked for: it is built in, and some device has a port
/// that carries traffic.
pub(super) fn has_fabric() -> bool {
    cfg!(feature = "ucx") && has_active_port(Path::new(DEVICES))
}

fn has_active_port(devices: &Path) -> bool {
    entries(devices)
        .flat_map(|device| entries(&device.join("ports")))
        .any(|port| std::fs::read_to_string(port.join("state")).is_ok_and(|state| state.starts_with(ACTIVE)))
}

/// The entries of a folder; none if it does not exist.
fn entries(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_counts_if_one_of_its_ports_is_active() {
        let devices = std::env::temp_dir().join(format!("multirail-fabric-{}", std::process::id()));
        assert!(!has_active_port(&devices), "no such folder");
        let port = |name: &str, state: &str| {
            std::fs::create_dir_all(devices.join(name)).unwrap();
            std::fs::write(devices.join(name).join("state"), state).unwrap();
        };
        port("mlx5_0/ports/1", "1: DOWN\n");
        port("mlx5_0/ports/2", "2: INIT\n");
        assert!(!has_active_port(&devices));
        port("mlx5_1/ports/1", "4: ACTIVE\n");
        assert!(has_active_port(&devices));
        std::fs::remove_dir_all(&devices).unwrap();
    }
}
