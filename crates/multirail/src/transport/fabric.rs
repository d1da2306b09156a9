//! Whether this host has an RDMA device that works: InfiniBand, RoCE and their like.

use std::path::Path;

/// Where the kernel lists them.
const DEVICES: &str = "/sys/class/infiniband";
/// What the state of a port begins with that carries traffic: `IB_PORT_ACTIVE`.
const ACTIVE: &str = "4:";

/// Whether some device has a port that carries traffic.
pub(super) fn is_here() -> bool {
    has_active_port(Path::new(DEVICES))
}

fn has_active_port(devices: &Path) -> bool {
    entries(devices)
        .flat_map(|device| entries(&device.join("ports")))
        .any(|port| std::fs::read_to_string(port.join("state")).is_ok_and(|state| state.starts_with(ACTIVE)))
}

/// What is in a folder; nothing in one that is not there.
fn entries(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_counts_when_a_port_of_it_is_active() {
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
