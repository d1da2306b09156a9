"""The kernel's multipath routes.

Every port has a network of its own, and every host an address that is reached over all of them. A
hash of addresses and ports decides which one a stream uses.
"""

import contextlib

FLAGS, OPTIONS = ["--subnets"], []
# Packets for a host's own address may arrive at any port.
SYSCTL = {
    "net.ipv4.fib_multipath_hash_policy": 1,
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
}


def available(_multirail, _line):
    return None


@contextlib.contextmanager
def prepared(net, _line):
    for host in net.hosts:
        own = address(net, host)
        net.run(host.name, "ip", "address", "add", f"{own}/32", "dev", "lo")
        for other in net.hosts:
            if other != host:
                ways = [
                    word
                    for number, port in enumerate(net.ports)
                    for word in ("nexthop", "via", net.address(other, number), "dev", port)
                ]
                congestion = (
                    ["congctl", net.network["congestion"]] if "congestion" in net.network else []
                )
                net.run(
                    host.name,
                    "ip",
                    "route",
                    "add",
                    f"{address(net, other)}/32",
                    "src",
                    own,
                    *congestion,
                    *ways,
                )
    yield


def address(_net, host):
    return f"10.89.0.{host.number}"
