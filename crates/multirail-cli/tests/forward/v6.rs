//! Targets with IPv6 addresses.

use super::cgroup::{Cgroup, python, take_over};
use super::{Net, passed};

/// Connects to the IPv6 address argv[1], and gets back what it sends.
const CLIENT: &str = "
target = (sys.argv[1], 7000)
s = socket.create_connection(target, timeout=60)
assert s.getsockname()[0] == '::1', s.getsockname()
assert s.getpeername()[:2] == target, s.getpeername()
sent = os.urandom(8 << 20)
got = bytearray()
def read():
    while data := s.recv(1 << 16):
        got.extend(data)
reader = threading.Thread(target=read)
reader.start()
s.sendall(sent)
s.shutdown(socket.SHUT_WR)
reader.join()
assert bytes(got) == sent, len(got)
# A target that refuses.
try:
    refused = socket.create_connection((sys.argv[1], 9), timeout=60)
    data = refused.recv(1)
    sys.exit(f'no error: {data}')
except (ConnectionRefusedError, ConnectionResetError):
    pass
";

/// Two hosts, a program at an IPv6 address of `h2`, and that address.
fn up(name: &str) -> Option<(Net, String)> {
    let mut net = Net::up(name, &["100mbit", "100mbit"], &["--allow-forward"])?;
    let address = net.lab.address_v6("h2", 0).unwrap().expect("rails have IPv6").to_string();
    net.echo(&address, "7000");
    Some((net, address))
}

/// Checks that both rails carry the bytes of what is done: no other way has both.
fn uses_both_rails(net: &Net, talk: impl FnOnce()) {
    let before = [net.sent_bytes(0), net.sent_bytes(1)];
    talk();
    for (rail, before) in before.into_iter().enumerate() {
        let sent = net.sent_bytes(rail) - before;
        assert!(sent > 2 << 20, "rail {rail} carried {sent} bytes of 8 MiB");
    }
}

#[test]
fn a_program_reaches_an_ipv6_address_over_both_rails() {
    let Some((net, address)) = up("v6") else { return };
    uses_both_rails(&net, || passed(&net.python(&["--require"], CLIENT, &[&address])));
}

#[test]
fn a_program_of_a_cgroup_reaches_an_ipv6_address_over_both_rails() {
    let Some((mut net, address)) = up("v6-cgroup") else { return };
    let Some(cgroup) = Cgroup::new("v6") else { return };
    let _stderr = take_over(&mut net, &cgroup, &address);
    uses_both_rails(&net, || passed(&python(&net, &cgroup, CLIENT, &[&address]).output().unwrap()));
}
