//! Which interfaces of a real kernel are ports: in a network namespace that ends with the thread
//! that made it.

use multirail::rails::{LocalPorts, local_ports};
use multirail_testing::{Requirement, skip};
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// One link of each kind: two ends of a cable, a bridge with a container's cable, and links that
/// are not ports.
const LINKS: &str = "\
link set lo up
link add cable0 type veth peer name cable1
link set cable0 up
link set cable1 up
addr add 10.9.0.1/24 dev cable0
addr add 10.9.0.3/24 dev cable0
addr add fd09::1/64 dev cable0 nodad
addr add fd09::9/64 dev cable0 nodad preferred_lft 0
addr add fe80::9/64 dev cable0 nodad
addr add 169.254.9.1/16 dev cable0
addr add 10.9.0.2/24 dev cable1
link add inside type veth peer name outside
link add br9 type bridge
link set outside master br9
link set br9 up
link set inside up
link set outside up
addr add 10.9.1.1/24 dev br9
addr add 10.9.1.2/24 dev outside
addr add 10.9.1.3/24 dev inside
link add off type veth peer name unplugged
link set unplugged up
addr add 10.9.3.1/24 dev off
addr add 10.9.4.1/24 dev unplugged
";

/// Kinds that some kernels lack.
const DUMMY: &str = "\
link add nothing type dummy
link set nothing up
addr add 10.9.2.1/24 dev nothing
";
const IFB: &str = "\
link add mirror type ifb
link set mirror up
addr add 10.9.6.1/24 dev mirror
";
const TUNNEL: &str = "\
link add tunnel type gre local 10.9.0.1 remote 10.9.0.99
link set tunnel up
addr add 10.9.5.1/24 dev tunnel
";

#[test]
fn links_of_the_kernel_are_classified() {
    let Some(found) = in_namespace(LINKS, Requirement::Namespaces) else { return };
    let ports: Vec<String> =
        found.ports.iter().map(|p| format!("{} {}/{} {}", p.name, p.address, p.prefix_bits, p.speed_mbit_s)).collect();
    let expected = [
        "cable0 10.9.0.1/24 0",
        "cable0 10.9.0.3/24 0",
        "cable0 fd09::1/64 0",
        "cable1 10.9.0.2/24 0",
        "inside 10.9.1.3/24 0",
    ];
    assert_eq!(sorted(ports), expected);
    let index = |name: &str| found.ports.iter().filter(|p| p.name == name).map(|p| p.index).collect::<Vec<_>>();
    let cable0 = index("cable0");
    assert!(cable0.iter().all(|i| *i == cable0[0]), "addresses of one port share its index");
    assert_ne!(cable0[0], index("cable1")[0]);

    // The kernel adds link-local addresses at any time, so those are not listed here.
    let own = |a: &std::net::IpAddr| match a {
        std::net::IpAddr::V4(_) => false,
        std::net::IpAddr::V6(a) => a.is_unicast_link_local() && *a != "fe80::9".parse::<std::net::Ipv6Addr>().unwrap(),
    };
    let left_out = found.left_out.iter().filter(|l| !l.address.as_ref().is_some_and(own));
    let left_out = left_out.map(|l| match l.address {
        Some(address) => format!("{} {address}: {}", l.name, l.reason),
        None => format!("{}: {}", l.name, l.reason),
    });
    // Some kernels add links to every new namespace (sit0, tunl0), and the second loopback address
    // depends on IPv6.
    let ours = ["lo ", "cable", "br9", "outside", "inside", "off", "unplugged"];
    let left_out: Vec<String> = left_out.filter(|l| ours.iter().any(|o| l.starts_with(o))).collect();
    let expected = [
        "br9 10.9.1.1: virtual (bridge), leads to no other host",
        "cable0 169.254.9.1: link-local address",
        "cable0 fd09::9: deprecated address",
        "cable0 fe80::9: link-local address",
        "lo 127.0.0.1: loopback",
        "lo ::1: loopback",
        "off 10.9.3.1: switched off",
        "outside 10.9.1.2: part of br9",
        "unplugged 10.9.4.1: no carrier",
    ];
    assert_eq!(sorted(left_out), expected);
}

#[test]
fn optional_kinds_are_classified() {
    for (kind, commands, name, reason) in [
        ("dummy", DUMMY, "nothing", "virtual (dummy), leads to no other host"),
        ("ifb", IFB, "mirror", "virtual (ifb), leads to no other host"),
        ("gre", TUNNEL, "tunnel", "a tunnel (gre), which is used only if it is named"),
    ] {
        let Some(found) = in_namespace(commands, Requirement::LinkKind(kind)) else { continue };
        let with_address = found.left_out.iter().filter(|l| l.name == name && l.address.is_some_and(|a| a.is_ipv4()));
        let reasons: Vec<String> = with_address.map(|l| l.reason.to_string()).collect();
        assert_eq!(reasons, [reason]);
        let named = found.including(&name.parse().unwrap(), None);
        assert_eq!(named.ports.iter().any(|p| p.name == name), name == "tunnel");
    }
}

#[test]
fn an_empty_namespace_has_no_ports() {
    let Some(found) = in_namespace("", Requirement::Namespaces) else { return };
    assert!(found.ports.is_empty(), "{found:?}");
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// The result of `local_ports` in a new namespace after some commands of `ip`, which need
/// `required` of the kernel. Returns `None` if that is not permitted or not supported; the test is
/// then reported as skipped.
///
/// `/sys` still shows the namespace in which the test started.
fn in_namespace(commands: &'static str, required: Requirement) -> Option<LocalPorts> {
    let work = move || -> io::Result<LocalPorts> {
        // SAFETY: takes no pointers; only this thread, which ends with this closure, changes its
        // namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        ip(commands)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        Ok(runtime.block_on(local_ports()).expect("netlink answers"))
    };
    match std::thread::spawn(work).join().expect("no panic") {
        Ok(found) => Some(found),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => {
            skip(Requirement::Namespaces, format!("a network namespace needs root and the ip command: {error}"));
            None
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            skip(required, error);
            None
        }
        Err(error) => panic!("cannot set up a namespace: {error}"),
    }
}

fn ip(commands: &str) -> io::Result<()> {
    let mut ip = Command::new("ip");
    let mut child = ip.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().expect("it is piped").write_all(commands.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("Unknown device type") || said.contains("not supported") => {
            let asked = commands.lines().next().unwrap_or_default();
            Err(io::Error::new(io::ErrorKind::Unsupported, format!("this kernel has no `{asked}`")))
        }
        false => Err(io::Error::other(format!("ip: {said}"))),
    }
}
