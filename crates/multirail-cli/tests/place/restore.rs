//! `down` restores the host, after a normal run and after `up` or the agent was killed.

use crate::net::{MULTIRAIL, Net, bytes_by_port, stderr, usable_ports};
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;
use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Instant;

#[test]
fn streams_use_all_ports_and_down_restores_the_host() {
    let Some(net) = Net::new("all", &["h1", "h2"], 3) else { return };
    // A strict host, without IPv6 on its extra ports.
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
    let status = net.wait("h1", "followed by an agent", |status| status["agent_pid"].is_u64());
    assert_eq!(usable_ports(&status), [0, 1, 2]);
    assert_eq!((status["policy"].as_str(), status["exchange"].is_null()), (Some("adaptive"), true));
    net.transfer("h1", "h2", net.address("h2"), 3_000_000);
    let ipv4 = bytes_by_port(&net.status("h1"));
    assert!(ipv4.iter().all(|&bytes| bytes > 300_000) && ipv4.iter().sum::<u64>() > 3_000_000, "{ipv4:?}");
    let v6: Ipv6Addr = net.lab.address_v6("h2", 0).unwrap().unwrap();
    net.transfer("h1", "h2", v6.into(), 3_000_000);
    let both = bytes_by_port(&net.status("h1"));
    assert!(both.iter().zip(&ipv4).all(|(both, ipv4)| both - ipv4 > 300_000), "{ipv4:?} {both:?}");
    // The first port stays as strict as it was.
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
fn down_restores_the_host_after_up_or_the_agent_was_killed() {
    let Some(net) = Net::new("killed", &["h1", "h2"], 3) else { return };
    let script = "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv6.conf.eth2.disable_ipv6=1";
    assert!(net.lab.command("h1", "bash").unwrap().args(["-c", script]).status().unwrap().success());
    let before = net.snapshot("h1");
    let begun = Instant::now();
    assert!(net.up_by_exchange("h1").status.success());
    let whole = begun.elapsed();
    // If only the agent is killed, placement stays up without it.
    let pid = net.status("h1")["agent_pid"].as_i64().unwrap();
    // SAFETY: kill takes no pointers.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGKILL) }, 0);
    net.wait("h1", "without its agent", |status| status["agent_pid"].is_null());
    assert!(net.place("h1", &["down"]).status.success());
    assert_eq!(net.snapshot("h1"), before);
    for_seeds(12, |seed| {
        let after = whole.mul_f64(1.1 * Rng::new(seed).unit());
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
        assert!(down.status.success(), "killed after {after:?}: {}", stderr(&down));
        assert_eq!(net.snapshot("h1"), before, "killed after {after:?}");
    });
}
