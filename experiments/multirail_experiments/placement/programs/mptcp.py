"""Multipath TCP of the kernel, on request of programs: a subflow in the network of each port."""

import contextlib
import pathlib

FLAGS, OPTIONS = ["--subnets"], ["--mptcp"]
SYSCTL = {}
LIMIT = 8


def available(_multirail, _line):
    return (
        None if pathlib.Path("/proc/sys/net/mptcp/enabled").exists() else "the kernel has no MPTCP"
    )


@contextlib.contextmanager
def prepared(net, _line):
    for host in net.hosts:
        net.run(
            host.name, "ip", "mptcp", "limits", "set", "subflow", LIMIT, "add_addr_accepted", LIMIT
        )
        for number, port in enumerate(net.ports):
            if number > 0:
                net.run(
                    host.name,
                    "ip",
                    "mptcp",
                    "endpoint",
                    "add",
                    net.address(host, number),
                    "dev",
                    port,
                    "signal",
                )
    yield


def address(net, host):
    return net.address(host)
