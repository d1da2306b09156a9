//! `multirail place` as its user meets it, between hosts of a lab: what it finds, what it refuses, and that nothing is left of it.

use multirail_lab::{Lab, LinkState, Ports, Rate};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");
/// Only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Hosts with ports, and files to work with; both go.
struct Net {
    lab: Lab,
    dir: PathBuf,
}

impl Net {
    /// None, and the reason printed, where labs cannot be made or the kernel has no BPF for it.
    fn new(name: &str, hosts: &[&str], ports: usize) -> Option<Self> {
        if let Err(why) = Lab::supported() {
            let _ = writeln!(std::io::stderr(), "skipped: {why}");
            return None;
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            let _ = writeln!(std::io::stderr(), "skipped: this kernel has no type information for BPF");
            return None;
        }
        let rates = vec![Rate::parse_optional("100mbit").unwrap(); ports];
        let lab = Lab::temporary(&Ports::default().topology(hosts, &rates).unwrap()).unwrap();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("place-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("token"), "a token of these tests").unwrap();
        let net = Self { lab, dir };
        let mut peers = String::from("# all hosts\n");
        for host in hosts {
            let macs: Vec<String> = net.ports(host).into_iter().map(|(_, mac)| mac).collect();
            peers.push_str(&format!("{}\n", macs.join(" ")));
        }
        fs::write(net.dir.join("peers"), peers).unwrap();
        for host in hosts {
            net.wait_for_addresses(host);
        }
        Some(net)
    }

    /// Addresses of IPv6 that the kernel still looks for duplicates of would be others later.
    fn wait_for_addresses(&self, host: &str) {
        let begun = Instant::now();
        let tentative = || self.run(host, Command::new("ip").args(["-6", "address", "show", "tentative"])).stdout;
        while !tentative().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "addresses stay tentative");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Names and addresses.
    fn ports(&self, host: &str) -> Vec<(String, String)> {
        let mut ports: Vec<_> = self.lab.ports().unwrap().into_iter().filter(|port| port.host == host).collect();
        ports.sort_by_key(|port| port.number);
        ports.into_iter().map(|port| (port.port, port.mac)).collect()
    }

    fn names(&self, host: &str) -> String {
        self.ports(host).into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// On a host, with the machine's own mounts.
    fn run(&self, host: &str, command: &mut Command) -> Output {
        self.lab.run_in(host, || command.output().unwrap()).unwrap()
    }

    fn place(&self, host: &str, args: &[&str]) -> Output {
        self.run(host, Command::new(MULTIRAIL).args(["--json", "place"]).args(args))
    }

    fn up_by_file(&self, host: &str) -> Output {
        self.place(host, &["up", "--ports", &self.names(host), "--peers", &self.path("peers")])
    }

    fn up_by_exchange(&self, host: &str) -> Output {
        self.place(host, &["up", "--ports", &self.names(host), "--token-file", &self.path("token")])
    }

    fn status(&self, host: &str) -> Value {
        let output = self.place(host, &["status"]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until the status is as wanted.
    fn wait(&self, host: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status(host);
            if wanted(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "{host}: not {what}: {status:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

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

    /// Sends so many bytes, and returns when all have arrived and were counted.
    fn transfer(&self, from: &str, to: &str, address: IpAddr, bytes: usize) {
        let listener = self.lab.run_in(to, || TcpListener::bind((address, 0)).unwrap()).unwrap();
        let target = listener.local_addr().unwrap();
        let receiver = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut got, mut buffer) = (0, vec![0; 1 << 16]);
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    n => got += n,
                }
            }
            stream.write_all(&[1]).unwrap();
            got
        });
        let mut stream = self.lab.run_in(from, || TcpStream::connect(target).unwrap()).unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(receiver.join().unwrap(), bytes);
    }

    fn address(&self, host: &str) -> IpAddr {
        self.lab.address(host, 0).unwrap().into()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let hosts: Vec<String> = self.lab.hosts().map(str::to_owned).collect();
        for host in hosts {
            self.place(&host, &["down"]);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn usable_ports(status: &Value) -> Vec<u64> {
    let peers = status["peers"].as_array().unwrap();
    peers.iter().flat_map(|peer| peer["usable_ports"].as_array().unwrap()).map(|port| port.as_u64().unwrap()).collect()
}

fn bytes_by_port(status: &Value) -> Vec<u64> {
    status["ports"].as_array().unwrap().iter().map(|port| port["bytes"].as_u64().unwrap()).collect()
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
fn hosts_find_each_other_and_leave_out_ports_that_fail() {
    let Some(net) = Net::new("found", &["h1", "h2", "h3"], 3) else { return };
    assert!(net.up_by_exchange("h1").status.success());
    // A host alone, and one with another token, are nobody's peers.
    fs::write(net.dir.join("other"), "another token").unwrap();
    assert!(net.place("h3", &["up", "--ports", &net.names("h3"), "--token-file", &net.path("other")]).status.success());
    net.wait("h1", "counting forged hellos", |status| status["exchange"]["forged"].as_u64() > Some(0));
    assert_eq!(usable_ports(&net.status("h1")), [] as [u64; 0]);
    assert!(net.up_by_exchange("h2").status.success());
    let all = |status: &Value| usable_ports(status) == [0, 1, 2];
    net.wait("h1", "with all ports", all);
    let status = net.wait("h2", "with all ports", all);
    let macs: Vec<String> = net.ports("h1").into_iter().map(|(_, mac)| mac).collect();
    assert_eq!(status["peers"][0]["macs"], serde_json::json!(macs));
    // Anybody may shout: nothing comes of it.
    assert!(net.place("h3", &["down"]).status.success());
    std::thread::sleep(Duration::from_secs(2));
    let shout = r#"
import socket, os
for port in ("eth0", "eth1", "eth2"):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((port, 0))
    for size in (1, 46, 200, 1300, 1490):
        s.send(b"\xff" * 6 + bytes([2, 9, 9, 9, 9, 9]) + b"\x88\xb5" + b"mrpl\x01" + os.urandom(size - 1))
"#;
    // What was heard before is counted by now: it is written down once a second.
    let before = net.status("h1")["exchange"]["forged"].as_u64().unwrap();
    assert!(net.lab.command("h3", "python3").unwrap().args(["-c", shout]).status().unwrap().success());
    net.wait("h1", "counting them", |status| status["exchange"]["forged"].as_u64() > Some(before + 14));
    // The cable of one port is pulled, seen by one host only.
    net.lab.set_port_link("h2", 1, LinkState::Down).unwrap();
    let without = |status: &Value| usable_ports(status) == [0, 2];
    let status = net.wait("h2", "without its port", without);
    assert_eq!(status["ports"][1]["why_not"], "it has no carrier");
    net.wait("h1", "without that port", without);
    net.transfer("h1", "h2", net.address("h2"), 500_000);
    net.lab.set_port_link("h2", 1, LinkState::Up).unwrap();
    net.wait("h1", "with all ports again", all);
    net.wait("h2", "with all ports again", all);
    // A switch loses everything silently.
    net.lab.set_port_link("h1", 2, LinkState::Cut).unwrap();
    let without = |status: &Value| usable_ports(status) == [0, 1];
    net.wait("h1", "without the silent port", without);
    net.wait("h2", "without the silent port", without);
    net.lab.set_port_link("h1", 2, LinkState::Up).unwrap();
    net.wait("h1", "with all ports again", all);
    // A host that ends says so: plain service by the first port.
    assert!(net.place("h2", &["down"]).status.success());
    net.wait("h1", "alone", |status| usable_ports(status).is_empty());
    net.transfer("h1", "h2", net.address("h2"), 500_000);
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
fn streams_are_listed_and_monitors_have_their_text() {
    let Some(net) = Net::new("streams", &["h1", "h2"], 2) else { return };
    assert!(net.up_by_file("h1").status.success() && net.up_by_file("h2").status.success());
    let listener = net.lab.run_in("h2", || TcpListener::bind((net.address("h2"), 0)).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let mut stream = net.lab.run_in("h1", || TcpStream::connect(target).unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(&[7; 200_000]).unwrap();
    accepted.read_exact(&mut [0; 200_000]).unwrap();
    let status = net.status("h1");
    let local = stream.local_addr().unwrap().to_string();
    let listed = status["streams"].as_array().unwrap().iter().find(|listed| listed["local"] == local.as_str());
    let listed = listed.unwrap_or_else(|| panic!("{local} is not in {status:#}"));
    assert_eq!(
        (listed["remote"].as_str(), listed["protocol"].as_str()),
        (Some(target.to_string().as_str()), Some("tcp"))
    );
    assert!(listed["bytes"].as_u64() > Some(200_000), "{listed}");
    let text = net.run("h1", Command::new(MULTIRAIL).args(["place", "status"]));
    assert!(String::from_utf8_lossy(&text.stdout).contains(&format!("tcp {local} -> {target}: ")), "{text:?}");
    let prometheus = net.place("h1", &["status", "--prometheus"]);
    let prometheus = String::from_utf8(prometheus.stdout).unwrap();
    assert!(prometheus.contains("# TYPE multirail_place_port_bytes_total counter\n"), "{prometheus}");
    for line in prometheus.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("multirail_place_") && name.ends_with('}') && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(prometheus.contains("multirail_place_port_usable{port=\"eth1\",number=\"1\"} 1\n"), "{prometheus}");
}

/// Connections from h1 to h2, of which each end has sent a byte, and h2 has closed its own: not every process may open files for both ends.
fn connections(net: &Net, count: usize) -> Vec<TcpStream> {
    let listener = net.lab.run_in("h2", || TcpListener::bind((net.address("h2"), 0)).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(&[7]).unwrap();
        }
    });
    let connect = || {
        let mut stream = TcpStream::connect(target).unwrap();
        stream.write_all(&[7]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let open = net.lab.run_in("h1", || (0..count).map(|_| connect()).collect()).unwrap();
    answering.join().unwrap();
    open
}

#[test]
fn ten_thousand_streams_are_kept_and_nothing_of_those_that_end() {
    const MANY: usize = 10_000;
    /// With those of other tests.
    const FILES: libc::rlim_t = MANY as libc::rlim_t + 1_000;
    let Some(net) = Net::new("many", &["h1", "h2"], 3) else { return };
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for both calls.
    let may = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files);
        files.rlim_cur = FILES.max(files.rlim_cur);
        files.rlim_max = files.rlim_cur.max(files.rlim_max);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) == 0
    };
    if !may {
        let _ = writeln!(std::io::stderr(), "skipped: this process may not open {FILES} files");
        return;
    }
    assert!(net.up_by_file("h1").status.success() && net.up_by_file("h2").status.success());
    let count = |status: &Value| status["streams"].as_array().unwrap().len();
    let open = connections(&net, MANY);
    let status = net.status("h1");
    assert_eq!(count(&status), MANY);
    let remote = format!("{}:", net.address("h2"));
    for stream in status["streams"].as_array().unwrap() {
        let is_right = stream["remote"].as_str().unwrap().starts_with(&remote) && stream["port"].as_u64().unwrap() < 3;
        assert!(is_right, "{stream}");
    }
    drop(open);
    net.wait("h1", "without streams", |status| count(status) == 0);
    // As many again that come and go, a thousand at a time.
    for _ in 0..MANY / 1_000 {
        drop(connections(&net, 1_000));
    }
    for host in ["h1", "h2"] {
        net.wait(host, "without streams", |status| count(status) == 0);
    }
}

#[test]
fn what_is_under_way_arrives_when_placement_ends() {
    let Some(net) = Net::new("down", &["h1", "h2"], 3) else { return };
    assert!(net.up_by_file("h1").status.success() && net.up_by_file("h2").status.success());
    let listener = net.lab.run_in("h2", || TcpListener::bind((net.address("h2"), 0)).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let mut sender = net.lab.run_in("h1", || TcpStream::connect(target).unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let (got, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let sending = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            let mut sent = 0;
            while !is_over.load(Relaxed) {
                sender.write_all(&[7; 1 << 16]).unwrap();
                sent += 1 << 16;
            }
            sent
        }
    });
    let receiving = std::thread::spawn({
        let got = got.clone();
        move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                match receiver.read(&mut buffer).unwrap() {
                    0 => break,
                    n => got.fetch_add(n as u64, Relaxed),
                };
            }
        }
    });
    let wait_for_more = |what: &str| {
        let (begun, before) = (Instant::now(), got.load(Relaxed));
        while got.load(Relaxed) < before + 2_000_000 {
            assert!(begun.elapsed() < PATIENCE, "nothing arrives {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for_more("before");
    assert!(bytes_by_port(&net.status("h1")).iter().all(|&bytes| bytes > 100_000));
    for host in ["h1", "h2"] {
        assert!(net.place(host, &["down"]).status.success());
        wait_for_more(&format!("after {host} is down"));
    }
    is_over.store(true, Relaxed);
    let sent = sending.join().unwrap();
    receiving.join().unwrap();
    assert_eq!(got.load(Relaxed), sent);
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
