//! `multirail forward --socks`.

use super::{Net, listening, passed};
use std::process::Stdio;

/// Connects by SOCKS5 to the host argv[1] and the port argv[2], sends, and expects the same back.
const CLIENT: &str = "
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
s = socket.create_connection(('127.0.0.1', 7100))
s.sendall(b'\\x05\\x01\\x00')
assert s.recv(2) == b'\\x05\\x00'
name = host.encode()
s.sendall(b'\\x05\\x01\\x00\\x03' + bytes([len(name)]) + name + port.to_bytes(2, 'big'))
reply = s.recv(10)
assert reply[:2] == b'\\x05\\x00', reply
s.sendall(b'through')
s.shutdown(socket.SHUT_WR)
got = b''
while data := s.recv(100):
    got += data
assert got == b'through', got
";

#[test]
fn socks_clients_reach_hosts_with_a_server_and_others() {
    let Some(mut net) = Net::up("socks", &["100mbit", "100mbit"], &["--allow-forward"]) else { return };
    let address = net.address(0);
    for via in [&[][..], &["--via", &address]] {
        let mut forward = net.command("h1", &["--json", "forward", "--socks", "7100", "--token-file", "token"]);
        let mut forward = forward.args(via).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(listening(&mut forward), "127.0.0.1:7100");
        let mut python = net.lab.command("h1", "python3").unwrap();
        let output = python.args(["-c", CLIENT, &address, "7000"]).output();
        forward.kill().unwrap();
        forward.wait().unwrap();
        passed(&output.unwrap());
    }
    // Without --via, hosts without a server are reached as well: here, this one.
    let own = net.lab.address("h1", 0).unwrap().to_string();
    net.echo_on("h1", &own, "7003");
    let mut forward = net.command("h1", &["--json", "forward", "--socks", "7100", "--token-file", "token"]);
    let mut forward = forward.stdout(Stdio::piped()).spawn().unwrap();
    listening(&mut forward);
    net.children.push(forward);
    let mut python = net.lab.command("h1", "python3").unwrap();
    passed(&python.args(["-c", CLIENT, &own, "7003"]).output().unwrap());
}
