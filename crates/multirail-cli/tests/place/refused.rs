//! What `up` refuses.

use crate::net::{MULTIRAIL, Net, stderr};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn an_invalid_up_is_refused_and_changes_nothing() {
    let Some(net) = Net::new("refused", &["h1", "h2"], 2) else { return };
    let own: Vec<String> = net.ports("h1").into_iter().map(|(_, mac)| mac).collect();
    let script = "set -e; ip link add br7 type bridge; for n in 1 2 3; do ip link add d$n type veth peer name e$n; done
                  ip link set d1 master br7; ip link set d1 up; ip link set d3 up; ip link set e3 up";
    assert!(net.lab.command("h1", "bash").unwrap().args(["-c", script]).status().unwrap().success());
    net.wait_for_addresses("h1");
    let before = net.snapshot("h1");
    let refused = |args: &[&str], why: &str| {
        let output = net.place("h1", args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
    };
    let token = net.path("token");
    for (ports, why) in [
        ("eth0,eth9", "port eth9: does not exist"),
        ("eth0,eth0", "eth0 is named twice"),
        ("eth0", "1 given; placement needs 2 to 16"),
        ("eth0,lo", "port lo: it is not an Ethernet port"),
        ("eth0,d1", "port d1: it belongs to another interface"),
        ("eth0,d2", "port d2: it is down"),
        ("d3,eth0", "port d3: the first port must be the one whose addresses programs use"),
    ] {
        refused(&["up", "--ports", ports, "--token-file", &token], why);
    }
    refused(&["up", "--ports", "eth0,eth1"], "give --token-file, or --peers FILE");
    refused(&["up", "--ports", "eth0,eth1", "--token-file", "/nowhere"], "token file /nowhere");
    let shared = net.token("shared");
    fs::set_permissions(&shared, Permissions::from_mode(0o640)).unwrap();
    refused(&["up", "--ports", "eth0,eth1", "--token-file", &shared], "its mode is 0640");
    refused(&["up", "--ports", "eth0,eth1", "--peers", "/nowhere"], "peers file /nowhere");
    for (content, why) in [
        ("02:00:00:00:02:00 nonsense".to_owned(), "line 1: \\\"nonsense\\\" is not an Ethernet address"),
        (format!("\n{} {}", own[1], own[0]), "line 2: this line has ports of this host, whose ports are, in order"),
        ("02:00:00:00:02:00=0mbit".to_owned(), "line 1: \\\"0mbit\\\" is not a port's speed"),
        ("ff:ff:ff:ff:ff:ff 02:00:00:00:02:01".to_owned(), "line 1: ff:ff:ff:ff:ff:ff is not a unicast address"),
        ("02:00:00:00:02:00\n02:00:00:00:02:00".to_owned(), "line 2: 02:00:00:00:02:00 is already on line 1"),
    ] {
        fs::write(net.dir.join("bad"), content).unwrap();
        let output = net.place("h1", &["up", "--ports", "eth0,eth1", "--peers", &net.path("bad")]);
        let said = stderr(&output).replace("\\\\", "\\");
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
    }
    assert_eq!(net.place("h1", &["up", "--ports", "eth0,eth1", "--policy", "best"]).status.code(), Some(2));
    // The error names the missing capabilities.
    let output = net
        .lab
        .run_in("h1", || {
            let mut command = Command::new(MULTIRAIL);
            command.args(["place", "up", "--ports", "eth0,eth1", "--token-file", &token]);
            let drop_rights = || {
                for right in [13, 21, 39] {
                    // SAFETY: prctl takes no pointers here.
                    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0) };
                }
                Ok(())
            };
            // SAFETY: prctl, the only call between fork and exec, is async-signal-safe.
            unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, drop_rights) };
            command.output().unwrap()
        })
        .unwrap();
    let said = stderr(&output);
    assert!(said.contains("CAP_BPF") && said.contains("CAP_NET_RAW") && !said.contains("CAP_NET_ADMIN"), "{said}");
    assert_eq!(net.snapshot("h1"), before);
    // An `ingress` queueing discipline has no egress hook.
    let tc = |args: &str| net.lab.command("h1", "tc").unwrap().args(args.split(' ')).status().unwrap().success();
    assert!(tc("qdisc add dev eth0 ingress"));
    refused(&["up", "--ports", "eth0,eth1", "--token-file", &token], "replace it by `clsact`");
    assert!(tc("qdisc del dev eth0 ingress"));
    assert_eq!(net.snapshot("h1"), before);
}
