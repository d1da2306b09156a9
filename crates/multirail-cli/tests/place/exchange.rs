//! Hosts that exchange hellos.

use crate::net::{Net, usable_ports};
use multirail_lab::LinkState;
use serde_json::Value;

#[test]
fn hosts_find_each_other_and_leave_out_ports_that_fail() {
    let Some(net) = Net::new("found", &["h1", "h2", "h3"], 3) else { return };
    assert!(net.up_by_exchange("h1").status.success());
    // Frames without a proof have no effect. Only h1 runs placement, so the number is exact.
    let send = r#"
import socket, os
for port in ("eth0", "eth1", "eth2"):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((port, 0))
    for size in (1, 46, 200, 1300, 1490):
        s.send(b"\xff" * 6 + bytes([2, 9, 9, 9, 9, 9]) + b"\x88\xb5" + b"mrpl\x01" + os.urandom(size - 1))
"#;
    assert!(net.lab.command("h3", "python3").unwrap().args(["-c", send]).status().unwrap().success());
    net.wait("h1", "counting forged frames", |status| status["exchange"]["forged"] == 15);
    // A host alone has no peers. Neither has one whose only neighbour has another token.
    let other = net.token("other");
    assert!(net.place("h3", &["up", "--ports", &net.names("h3"), "--token-file", &other]).status.success());
    net.wait("h1", "counting forged hellos", |status| status["exchange"]["forged"].as_u64() > Some(15));
    assert_eq!(usable_ports(&net.status("h1")), [] as [u64; 0]);
    assert!(net.up_by_exchange("h2").status.success());
    let all = |status: &Value| usable_ports(status) == [0, 1, 2];
    net.wait("h1", "with all ports", all);
    let status = net.wait("h2", "with all ports", all);
    let macs: Vec<String> = net.ports("h1").into_iter().map(|(_, mac)| mac).collect();
    assert_eq!(status["peers"][0]["macs"], serde_json::json!(macs));
    assert!(net.place("h3", &["down"]).status.success());
    // One port loses its carrier, which only one host sees.
    net.lab.set_port_link("h2", 1, LinkState::Down).unwrap();
    let without = |status: &Value| usable_ports(status) == [0, 2];
    let status = net.wait("h2", "without its port", without);
    assert_eq!(status["ports"][1]["unusable_reason"], "it has no carrier");
    net.wait("h1", "without that port", without);
    net.transfer("h1", "h2", net.address("h2"), 500_000);
    net.lab.set_port_link("h2", 1, LinkState::Up).unwrap();
    net.wait("h1", "with all ports again", all);
    net.wait("h2", "with all ports again", all);
    // A switch drops all frames, which no host sees.
    net.lab.set_port_link("h1", 2, LinkState::Cut).unwrap();
    let without = |status: &Value| usable_ports(status) == [0, 1];
    net.wait("h1", "without the silent port", without);
    net.wait("h2", "without the silent port", without);
    net.lab.set_port_link("h1", 2, LinkState::Up).unwrap();
    net.wait("h1", "with all ports again", all);
    // A host that ends placement reports it, and is then reached by the first port.
    assert!(net.place("h2", &["down"]).status.success());
    net.wait("h1", "alone", |status| usable_ports(status).is_empty());
    net.transfer("h1", "h2", net.address("h2"), 500_000);
}
