//! Placement without root.

use crate::net::{MULTIRAIL, Net, TIMEOUT, stderr};
use std::time::{Duration, Instant};

#[test]
fn capabilities_suffice_without_root_and_with_private_mounts() {
    let Some(net) = Net::new("rights", &["h1", "h2"], 2) else { return };
    let token = net.token("nobodys");
    std::os::unix::fs::chown(&token, Some(65534), Some(65534)).unwrap();
    // An administrator makes these directories once. The mounts are private to the script.
    let script = format!(
        "set -e; mount -t bpf -o mode=1777 bpf /sys/fs/bpf; mount -t tmpfs tmpfs /run; mkdir -m 1777 /run/multirail
         caps=+bpf,+net_admin,+perfmon,+net_raw
         as_nobody() {{ setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps $caps --ambient-caps $caps {MULTIRAIL} place \"$@\"; }}
         as_nobody up --ports eth0,eth1 --token-file {token} && as_nobody status && as_nobody down && ls -A /run/multirail /sys/fs/bpf"
    );
    let output = net.lab.command("h1", "bash").unwrap().args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(said.contains("placement is up: adaptive") && said.contains("the host is as it was before"), "{said}");
    assert!(!said.contains("place-") && !said.contains("multirail-place"), "{said}");
    // A command with other mounts finds the program, too.
    let own_sys = |args: &[&str]| net.lab.command("h1", MULTIRAIL).unwrap().arg("place").args(args).output().unwrap();
    let up = own_sys(&["up", "--ports", "eth0,eth1", "--token-file", &net.path("token")]);
    assert!(up.status.success(), "{}", stderr(&up));
    for status in [own_sys(&["status"]), net.place("h1", &["status"])] {
        assert!(status.status.success(), "{}", stderr(&status));
    }
    assert!(own_sys(&["down"]).status.success());
    assert_eq!(net.files("h1"), [] as [&str; 0]);
}

/// An agent that root has started keeps no other rights of root's.
#[test]
fn an_agent_gives_up_capabilities() {
    let Some(net) = Net::new("caps", &["h1", "h2"], 2) else { return };
    let wlen = net.lab.command("h1", "cat").unwrap().arg("/proc/sys/net/ipv4/tcp_min_rtt_wlen").output().unwrap();
    let before = String::from_utf8_lossy(&wlen.stdout).trim().to_owned();
    let up = net.place("h1", &["up", "--ports", "eth0,eth1", "--token-file", &net.path("token")]);
    assert!(up.status.success(), "{}", stderr(&up));
    let script = format!(
        "for process in /proc/[0-9]*; do
            if [ $(readlink $process/exe)/$(readlink $process/ns/net) = {MULTIRAIL}/$(readlink /proc/self/ns/net) ]
            then cat $process/task/*/status; fi
         done"
    );
    let status = net.lab.command("h1", "bash").unwrap().args(["-c", &script]).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout);
    let masks = |name: &str| -> Vec<u64> {
        let lines = status.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(|mask| u64::from_str_radix(mask.trim_start_matches(':').trim(), 16).unwrap()).collect()
    };
    // CAP_NET_ADMIN and CAP_BPF.
    let kept = 1 << 12 | 1 << 39;
    for name in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(masks(name), [kept], "{name} of {status}");
    }
    // They suffice for undoing placement when the first port disappears.
    let setting = || {
        let read = net.lab.command("h1", "cat").unwrap().arg("/proc/sys/net/ipv4/tcp_min_rtt_wlen").output().unwrap();
        String::from_utf8_lossy(&read.stdout).trim().to_owned()
    };
    assert_ne!(setting(), before);
    let deleted = net.lab.command("h1", "ip").unwrap().args(["link", "delete", "eth0"]).output().unwrap();
    assert!(deleted.status.success(), "{}", stderr(&deleted));
    let begun = Instant::now();
    while setting() != before || net.files("h1") != [] as [&str; 0] {
        assert!(begun.elapsed() < TIMEOUT, "{} and {:?} stay", setting(), net.files("h1"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Other users can neither lock the files of placement nor pin objects in a file system that it mounted.
#[test]
fn other_users_cannot_hold_placement_up() {
    let Some(net) = Net::new("others", &["h1", "h2"], 2) else { return };
    let script = format!(
        "set -e; umount -l /sys/fs/bpf 2>/dev/null || true; mount -t tmpfs tmpfs /run
         {MULTIRAIL} place up --ports eth0,eth1 --token-file {}
         stat -c %a /sys/fs/bpf /run/multirail/*.lock /run/multirail/*.agent
         {MULTIRAIL} place down",
        net.path("token")
    );
    let output = net.lab.command("h1", "bash").unwrap().args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(said.contains("\n1700\n600\n600\n"), "{said}");
}
