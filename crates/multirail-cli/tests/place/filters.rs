//! Placement beside filters of other programs, and a second placement.

use crate::net::{Net, stderr};
use std::fs;

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
        up.status.success() && stderr(&up).contains("1 other filter(s) at the egress hook of eth0 run first"),
        "{}",
        stderr(&up)
    );
    let twice = net.up_by_file("h1");
    assert!(
        twice.status.code() == Some(1) && stderr(&twice).contains("placement is already up here"),
        "{}",
        stderr(&twice)
    );
    assert_eq!(net.status("h1")["ports"].as_array().unwrap().len(), 2, "the first placement is unchanged");
    assert!(net.place("h1", &["down"]).status.success());
    assert_eq!(net.snapshot("h1"), before);
    // The same after the record of the changes was removed.
    assert!(net.up_by_file("h1").status.success());
    let removed = format!("/run/multirail/place-{}.json", net.cookie("h1"));
    fs::remove_file(removed).unwrap();
    let down = net.place("h1", &["down"]);
    assert!(
        down.status.code() == Some(1) && stderr(&down).contains("the record of the changes is missing"),
        "{}",
        stderr(&down)
    );
    let script = "for key in arp_ignore arp_announce; do sysctl -qw net.ipv4.conf.eth1.$key=0; done; sysctl -qw net.ipv4.tcp_min_rtt_wlen=300";
    assert!(net.lab.command("h1", "bash").unwrap().args(["-c", script]).status().unwrap().success());
    assert_eq!(net.snapshot("h1"), before);
    // A hook that another filter uses stays.
    assert!(tc(&["qdisc", "del", "dev", "eth0", "clsact"]) && net.up_by_file("h1").status.success());
    assert!(tc(&bpf) && net.place("h1", &["down"]).status.success());
    assert_eq!(net.snapshot("h1"), before);
}
