//! `multirail place` as its user meets it, between hosts of a lab: what it does to a host, what it refuses, and that nothing is left of it.

mod net;

use net::{MULTIRAIL, Net, bytes_by_port, stderr, usable_ports};
use std::fs;
use std::net::{Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

impl Net {
    /// Everything that placement could leave behind.
    fn snapshot(&self, host: &str) -> String {
        let script = r#"
            ip -d link; ip address; ip rule; ip route show table all; ip -6 route show table all; tc qdisc
            for port in $(ls /sys/class/net); do tc filter show dev $port egress; tc filter show dev $port ingress; done
            sysctl -a 2>/dev/null | grep '^net\.' | grep -v nf_conntrack_count"#;
        let output = self.lab.command(host, "bash").unwrap().args(["-c", script]).output().unwrap();
        let pins = self.pins(host);
        format!("{}{:?}{:?}", String::from_utf8(output.stdout).unwrap(), self.files(host), pins.exists())
    }

    fn cookie(&self, host: &str) -> u64 {
        self.lab
            .run_in(host, || {
                let socket = TcpListener::bind("127.0.0.1:0").unwrap();
                let (mut cookie, mut length) = (0_u64, 8);
                // SAFETY: both pointers are valid for the length that is said.
                let done = unsafe {
                    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
                    libc::getsockopt(
                        fd,
                        libc::SOL_SOCKET,
                        libc::SO_NETNS_COOKIE,
                        (&raw mut cookie).cast(),
                        &raw mut length,
                    )
                };
                assert_eq!(done, 0);
                cookie
            })
            .unwrap()
    }

    fn pins(&self, host: &str) -> PathBuf {
        Path::new("/sys/fs/bpf/multirail-place").join(self.cookie(host).to_string())
    }

    /// What is kept of this host between commands.
    fn files(&self, host: &str) -> Vec<String> {
        let begins = format!("place-{}.", self.cookie(host));
        let names = fs::read_dir("/run/multirail").into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name.starts_with(&begins)).collect()
    }
}

#[test]
fn streams_use_all_ports_and_down_leaves_the_host_as_it_was() {
    let Some(net) = Net::new("all", &["h1", "h2"], 3) else { return };
    // A host that is strict, and has no IPv6 where it has no address.
    for host in ["h1", "h2"] {
        let script = "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth1.rp_filter=2 net.ipv6.conf.eth1.disable_ipv6=1 \
                      net.ipv6.conf.eth2.disable_ipv6=1";
        assert!(net.lab.command(host, "bash").unwrap().args(["-c", script]).status().unwrap().success());
    }
    let before = net.snapshot("h1");
    for host in ["h1", "h2"] {
        let up = net.up_by_file(host);
        assert_eq!((up.status.code(), stderr(&up).as_str()), (Some(0), ""));
    }
    assert!(net.pins("h1").join("place").exists());
    let status = net.wait("h1", "looked at by the agent", |status| status["agent_pid"].is_u64());
    assert_eq!(usable_ports(&status), [0, 1, 2]);
    assert_eq!((status["policy"].as_str(), status["exchange"].is_null()), (Some("adaptive"), true));
    net.transfer("h1", "h2", net.address("h2"), 3_000_000);
    let ipv4 = bytes_by_port(&net.status("h1"));
    assert!(ipv4.iter().all(|&bytes| bytes > 300_000) && ipv4.iter().sum::<u64>() > 3_000_000, "{ipv4:?}");
    let v6: Ipv6Addr = net.lab.address_v6("h2", 0).unwrap().unwrap();
    net.transfer("h1", "h2", v6.into(), 3_000_000);
    let both = bytes_by_port(&net.status("h1"));
    assert!(both.iter().zip(&ipv4).all(|(both, ipv4)| both - ipv4 > 300_000), "{ipv4:?} {both:?}");
    // Programs' other neighbours, and the host itself, are as they were.
    let strict =
        net.lab.command("h1", "sysctl").unwrap().args(["-n", "net.ipv4.conf.eth0.rp_filter"]).output().unwrap();
    assert_eq!(strict.stdout, b"1\n");
    for host in ["h1", "h2"] {
        let down = net.place(host, &["down"]);
        assert_eq!((down.status.code(), stderr(&down).as_str()), (Some(0), ""));
        assert_eq!(String::from_utf8(down.stdout).unwrap(), "{\"was_up\":true,\"failures\":[]}\n");
    }
    assert_eq!(net.snapshot("h1"), before);
    assert_eq!(net.files("h1"), [] as [&str; 0]);
    let again = net.place("h1", &["down"]);
    assert_eq!(
        (again.status.code(), again.stdout.as_slice()),
        (Some(0), b"{\"was_up\":false,\"failures\":[]}\n".as_slice())
    );
    assert_eq!(net.place("h1", &["status"]).status.code(), Some(1));
}

#[test]
fn down_puts_everything_back_wherever_up_or_the_agent_was_killed() {
    let Some(net) = Net::new("killed", &["h1", "h2"], 3) else { return };
    let script = "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv6.conf.eth2.disable_ipv6=1";
    assert!(net.lab.command("h1", "bash").unwrap().args(["-c", script]).status().unwrap().success());
    let before = net.snapshot("h1");
    let begun = Instant::now();
    assert!(net.up_by_exchange("h1").status.success());
    let whole = begun.elapsed();
    // The agent alone: what it knew last goes on, and a new one can be had only by hand.
    let pid = net.status("h1")["agent_pid"].as_i64().unwrap();
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGKILL) }, 0);
    net.wait("h1", "without its agent", |status| status["agent_pid"].is_null());
    assert!(net.place("h1", &["down"]).status.success());
    assert_eq!(net.snapshot("h1"), before);
    let seed = std::env::var("PLACE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    let mut rng = multirail_proto::rng::Rng::new(seed);
    for round in 0..12 {
        let after = whole.mul_f64(1.1 * rng.unit());
        let mut up = net
            .lab
            .run_in("h1", || {
                let names = net.names("h1");
                let mut command = Command::new(MULTIRAIL);
                command.args(["place", "up", "--ports", &names, "--token-file", &net.path("token")]);
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
            })
            .unwrap();
        std::thread::sleep(after);
        up.kill().unwrap();
        up.wait().unwrap();
        let down = net.place("h1", &["down"]);
        assert!(down.status.success(), "round {round}, killed after {after:?} (PLACE_SEED={seed}): {}", stderr(&down));
        assert_eq!(net.snapshot("h1"), before, "round {round}, killed after {after:?} (PLACE_SEED={seed})");
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
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
        ("eth0,eth9", "port eth9: there is none of this name"),
        ("eth0,eth0", "eth0 is there twice"),
        ("eth0", "1 given; placement needs 2 to 16"),
        ("eth0,lo", "port lo: it is no Ethernet port"),
        ("eth0,d1", "port d1: it is part of another interface"),
        ("eth0,d2", "port d2: it is switched off"),
        ("d3,eth0", "port d3: it is the first port, which programs send through, and has no address"),
    ] {
        refused(&["up", "--ports", ports, "--token-file", &token], why);
    }
    refused(&["up", "--ports", "eth0,eth1"], "give --token-file, or --peers FILE");
    refused(&["up", "--ports", "eth0,eth1", "--token-file", "/nowhere"], "token file /nowhere");
    refused(&["up", "--ports", "eth0,eth1", "--peers", "/nowhere"], "peers file /nowhere");
    for (content, why) in [
        ("02:00:00:00:02:00 nonsense".to_owned(), "line 1: \\\"nonsense\\\" is not an Ethernet address"),
        (format!("\n{} {}", own[1], own[0]), "line 2: this is this host's line, but its ports are, in order"),
        ("02:00:00:00:02:00=0mbit".to_owned(), "line 1: \\\"0mbit\\\" is not a port's speed"),
        ("ff:ff:ff:ff:ff:ff 02:00:00:00:02:01".to_owned(), "line 1: ff:ff:ff:ff:ff:ff is no address of a single port"),
        ("02:00:00:00:02:00\n02:00:00:00:02:00".to_owned(), "line 2: 02:00:00:00:02:00 is on line 1 already"),
    ] {
        fs::write(net.dir.join("bad"), content).unwrap();
        let output = net.place("h1", &["up", "--ports", "eth0,eth1", "--peers", &net.path("bad")]);
        let said = stderr(&output).replace("\\\\", "\\");
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
    }
    assert_eq!(net.place("h1", &["up", "--ports", "eth0,eth1", "--policy", "best"]).status.code(), Some(2));
    // Without the rights, it says which.
    let output = net
        .lab
        .run_in("h1", || {
            let mut command = Command::new(MULTIRAIL);
            command.args(["place", "up", "--ports", "eth0,eth1", "--token-file", &token]);
            let drop_rights = || {
                for right in [13, 21, 39] {
                    // SAFETY: no memory is passed.
                    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0) };
                }
                Ok(())
            };
            // SAFETY: between fork and exec only those system calls are made.
            unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, drop_rights) };
            command.output().unwrap()
        })
        .unwrap();
    let said = stderr(&output);
    assert!(said.contains("CAP_BPF") && said.contains("CAP_NET_RAW") && !said.contains("CAP_NET_ADMIN"), "{said}");
    assert_eq!(net.snapshot("h1"), before);
    // A hook of the old kind leaves no room.
    let tc = |args: &str| net.lab.command("h1", "tc").unwrap().args(args.split(' ')).status().unwrap().success();
    assert!(tc("qdisc add dev eth0 ingress"));
    refused(&["up", "--ports", "eth0,eth1", "--token-file", &token], "replace it by `clsact`");
    assert!(tc("qdisc del dev eth0 ingress"));
    assert_eq!(net.snapshot("h1"), before);
}

#[test]
fn other_filters_stay_and_a_second_up_is_refused() {
    let Some(net) = Net::new("beside", &["h1", "h2"], 2) else { return };
    let tc = |args: &[&str]| net.lab.command("h1", "tc").unwrap().args(args).status().unwrap().success();
    assert!(tc(&["qdisc", "add", "dev", "eth0", "clsact"]));
    let bpf = [
        "filter",
        "add",
        "dev",
        "eth0",
        "egress",
        "pref",
        "9",
        "protocol",
        "all",
        "bpf",
        "bytecode",
        "1,6 0 0 4294967295",
        "da",
    ];
    assert!(tc(&bpf));
    let before = net.snapshot("h1");
    let up = net.up_by_file("h1");
    assert!(
        up.status.success() && stderr(&up).contains("1 other filter(s) at the egress hook of eth0 come first"),
        "{}",
        stderr(&up)
    );
    let twice = net.up_by_file("h1");
    assert!(
        twice.status.code() == Some(1) && stderr(&twice).contains("placement is up here already"),
        "{}",
        stderr(&twice)
    );
    assert_eq!(net.status("h1")["ports"].as_array().unwrap().len(), 2, "the first is as it was");
    assert!(net.place("h1", &["down"]).status.success());
    assert_eq!(net.snapshot("h1"), before);
    // Also where somebody has removed the file that says what was changed.
    assert!(net.up_by_file("h1").status.success());
    let removed = format!("/run/multirail/place-{}.json", net.cookie("h1"));
    fs::remove_file(removed).unwrap();
    let down = net.place("h1", &["down"]);
    assert!(
        down.status.code() == Some(1) && stderr(&down).contains("the file of what was changed is gone"),
        "{}",
        stderr(&down)
    );
    let script = "for key in arp_ignore arp_announce; do sysctl -qw net.ipv4.conf.eth1.$key=0; done; sysctl -qw net.ipv4.tcp_min_rtt_wlen=300";
    assert!(net.lab.command("h1", "bash").unwrap().args(["-c", script]).status().unwrap().success());
    assert_eq!(net.snapshot("h1"), before);
    // A hook that others have begun to use stays.
    assert!(tc(&["qdisc", "del", "dev", "eth0", "clsact"]) && net.up_by_file("h1").status.success());
    assert!(tc(&bpf) && net.place("h1", &["down"]).status.success());
    assert_eq!(net.snapshot("h1"), before);
}

#[test]
fn rights_are_enough_without_root_and_with_a_sys_of_its_own() {
    let Some(net) = Net::new("rights", &["h1", "h2"], 2) else { return };
    // Folders that an administrator makes once, in mounts that nobody else sees.
    let script = format!(
        "set -e; mount -t bpf -o mode=1777 bpf /sys/fs/bpf; mount -t tmpfs tmpfs /run; mkdir -m 1777 /run/multirail
         caps=+bpf,+net_admin,+perfmon,+net_raw
         as_nobody() {{ setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps $caps --ambient-caps $caps {MULTIRAIL} place \"$@\"; }}
         as_nobody up --ports eth0,eth1 --token-file {} && as_nobody status && as_nobody down && ls -A /run/multirail /sys/fs/bpf",
        net.path("token")
    );
    let output = net.lab.command("h1", "bash").unwrap().args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(said.contains("placement is up: adaptive") && said.contains("everything is as it was before"), "{said}");
    assert!(!said.contains("place-") && !said.contains("multirail-place"), "{said}");
    // A command that sees other mounts finds the program all the same.
    let own_sys = |args: &[&str]| net.lab.command("h1", MULTIRAIL).unwrap().arg("place").args(args).output().unwrap();
    let up = own_sys(&["up", "--ports", "eth0,eth1", "--token-file", &net.path("token")]);
    assert!(up.status.success(), "{}", stderr(&up));
    for status in [own_sys(&["status"]), net.place("h1", &["status"])] {
        assert!(status.status.success(), "{}", stderr(&status));
    }
    assert!(own_sys(&["down"]).status.success());
    assert_eq!(net.files("h1"), [] as [&str; 0]);
}
