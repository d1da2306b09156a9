"""A group of the library, which keeps its links: the example crates/multirail/examples/group.rs.

Key of a line: `method`.

Each message is broadcast twice. The first time is not measured, as with Open MPI: links between
hosts are made then.
"""

import contextlib
import pathlib
import time

PORT = 7740


def program(net):
    return pathlib.Path(net.multirail).parent / "examples/group"


def available(net):
    if program(net).exists():
        return None
    return "no example: cargo build --release -p multirail --example group"


@contextlib.contextmanager
def session(net, line):
    setup = time.monotonic()
    others = [host for host in net.hosts if host is not net.root]
    numbers = {cluster: number for number, cluster in enumerate(net.clusters)}
    if numbers[net.root.cluster] != 0:
        raise ValueError("the root is expected in the first cluster")
    found = [f"{host.address}:{PORT}={numbers[host.cluster]}" for host in others]
    receive = {host.name: net.folder(host) / "received" for host in others}

    def command_of(host):
        if host is net.root:
            return [program(net), "send", line["method"], *found]
        return [program(net), "receive", f"{host.address}:{PORT}", receive[host.name]]

    with (
        net.peers(command_of, others, ready="ready") as receivers,
        net.peers(command_of, [net.root], ready="ready") as root,
    ):
        yield Group(net, root, receivers, receive, time.monotonic() - setup)


class Group:
    """Hosts that stay for all broadcasts."""

    def __init__(self, net, root, receivers, received, setup_s):
        self.net, self.root, self.receivers = net, root, receivers
        self.received, self.setup_s = list(received.values()), setup_s

    def run(self, file, limit_s):
        """Broadcasts once; returns the time until the last host had the file."""
        until = time.monotonic() + limit_s
        self.root.tell(file)
        done = self.receivers.wait_for("done", len(self.received), until - time.monotonic())
        began = self.root.wait_for("began", 1, until - time.monotonic())
        return max(map(float, done.values())) - float(*began.values())

    def broadcast(self, file, begin, limit_s, _point):
        self.run(file, limit_s)
        self.receivers.reset_cpu()
        begin()
        seconds = self.run(file, limit_s)
        return {
            "seconds": seconds,
            "setup_s": self.setup_s,
            "before_s": self.setup_s,
            "peers_cpu_s": self.receivers.cpu_s(),
            "received": self.received,
        }
