"""Hosts with several ports: a `multirail lab`, one load generator on each host, and what a run of streams between them gave."""

import contextlib
import json
import time
from typing import NamedTuple

from host import Cpu, is_limit
from lab import Lab, mbit_s
from multicast_net import Peers
from tools.common import program

PORT = 7840
# From the order until streams start: all hosts have it, and connections are made.
LEAD_S = 0.25
# The answer comes so long after a run's end, or something is wrong.
ANSWER_S = 20
READY_S = 20


class Host(NamedTuple):
    name: str
    number: int


class Ports(Lab):
    """A context manager. `network` is a table of plan.toml: {"name": …, "hosts": 4, "ports": 4, "rate": "100mbit"}, or "port_rates" (a
    list) or neither, for ports as fast as the machine; where wanted "queue", "trunk", "sysctl" (a table), and "congestion".

    `flags` are more of `multirail lab up`, `sysctl` more of those, that what is compared needs, and `congestion` another one.
    """

    def __init__(self, multirail, network, flags=(), sysctl=None, congestion=None):
        super().__init__(multirail, {**network, "rails": [], **({"congestion": congestion} if congestion else {})})
        self.flags, self.sysctl = flags, {**network.get("sysctl", {}), **(sysctl or {})}
        self.hosts = [Host(f"h{number}", number) for number in range(1, network["hosts"] + 1)]
        rates = network.get("port_rates") or [network.get("rate", "-")] * network["ports"]
        self.port_rates_mbit_s = [mbit_s(rate) for rate in rates]

    @property
    def ports(self):
        return [f"eth{number}" for number in range(self.network["ports"])]

    def address(self, host, port=0):
        return f"10.{90 + port}.0.{host.number}"

    def host_of(self, address):
        return self.hosts[int(address.rpartition(".")[2]) - 1]

    def _network_flags(self):
        network = self.network
        flags = ["--hosts", str(network["hosts"]), "--ports", str(network["ports"]), *self.flags]
        for key in ("rate", "queue"):
            if key in network:
                flags += [f"--{key}", str(network[key])]
        if "port_rates" in network:
            flags += ["--port-rates", ",".join(network["port_rates"])]
        if network.get("trunk"):
            flags.append("--trunk")
        for key, value in self.sysctl.items():
            flags += ["--sysctl", f"{key}={value}"]
        return flags

    def _set_congestion(self):
        """By the routes, as there: of every port that has a network."""
        if "congestion" not in self.network:
            return
        for host in self.hosts:
            for row in self.run(host.name, "ip", "-4", "route", "show", "proto", "kernel").stdout.splitlines():
                self.run(host.name, "ip", "route", "change", *row.split(), "proto", "kernel", "congctl", self.network["congestion"])

    def port_rows(self):
        """What `lab list` says of all ports."""
        listed = map(json.loads, self._lab("list", "--json").splitlines())
        return [row for row in listed if (row["kind"], row["lab"]) == ("port", self.name)]

    @contextlib.contextmanager
    def loads(self, *options):
        """A load generator on each host while the block runs; `options` are its own."""
        # Once more: what uses all ports may have made routes anew.
        self._set_congestion()
        command = [program("streams"), PORT, *options]
        peers = Peers(self, lambda _host: command, self.work / "streams.log")
        try:
            for host in self.hosts:
                peers.start(host)
            peers.wait_for("ready", len(self.hosts), READY_S)
            yield Loads(self, peers, options)
        finally:
            peers.end()


class Stream(NamedTuple):
    """So many streams of one kind from a host to another: as fast as they can, or of messages at a rate."""

    source: Host
    target: Host
    count: int
    rate_mbit_s: float = 0
    message_bytes: int = 0


class Loads:
    """Runs of streams."""

    def __init__(self, net, peers, options):
        # Options are those of the load generator, which other programs of experiments/c have, too.
        self.net, self.peers, self.options = net, peers, options
        # At which a host is reached.
        self.address = net.address

    def run(self, streams, warm_up_s, seconds, meanwhile=None):
        """Runs them all at once; `meanwhile()` is called when the measured time begins, and its answer given back."""
        start = time.monotonic() + LEAD_S
        begin, end = start + warm_up_s, start + warm_up_s + seconds
        times = " ".join(str(round(at * 1e9)) for at in (start, begin, end))
        for host in self.net.hosts:
            words = [f"{self.address(s.target)}:{s.count}:{s.rate_mbit_s * 1e3:g}:{s.message_bytes}" for s in streams if s.source == host]
            self.peers.tell(" ".join([times, *words]), [host.name])
        time.sleep(max(begin - time.monotonic(), 0))
        cpu = Cpu()
        answer = meanwhile() if meanwhile else None
        time.sleep(max(end - time.monotonic(), 0))
        used = cpu.take()
        said = {}
        while len(said) < len(self.net.hosts):
            name, line = self.peers.next(end + ANSWER_S)
            said[name] = json.loads(line)
        return Run(self.net, streams, seconds, said, used), answer


class Run:
    """What hosts said of a run."""

    def __init__(self, net, streams, seconds, said, used):
        self.net, self.streams, self.seconds, self.said = net, streams, seconds, said
        self.cpu_idle_share = used["cpu_idle_share"]
        self.cpu_s = used["cpu_s"]
        self.cpu_was_limit = is_limit(self.cpu_idle_share)

    def rates_mbit_s(self):
        """Of each stream, as its receiver saw it. One of which nothing came is 0."""
        found = []
        for target in self.net.hosts:
            got = [row["bytes"] * 8 / 1e6 / self.seconds for row in self.said[target.name]["received"]]
            wanted = sum(stream.count for stream in self.streams if stream.target == target)
            found += got + [0.0] * (wanted - len(got))
        return found

    def backlogs(self, field):
        return [row[field] for host in self.net.hosts for row in self.said[host.name]["sent"]]

    def counter(self, *names):
        """What counters of TCP grew by, on all hosts together."""
        return sum(after.get(name, 0) - before.get(name, 0) for before, after in map(self._tcp, self.net.hosts) for name in names)

    def _tcp(self, host):
        return [tcp_counters(self.said[host.name][when]) for when in ("before", "after")]

    def port_bytes(self, host, way):
        """What each port of a host sent or received; `way` is "sent" or "received"."""
        before, after = (port_counters(self.said[host.name][when]["dev"]) for when in ("before", "after"))
        return [after[port][way] - before[port][way] for port in self.net.ports]

    def packets(self):
        """That all ports of all hosts sent."""
        return sum(self.port_count(host, "sent_packets") for host in self.net.hosts)

    def port_count(self, host, way):
        before, after = (port_counters(self.said[host.name][when]["dev"]) for when in ("before", "after"))
        return sum(after[port][way] - before[port][way] for port in self.net.ports)


def tcp_counters(files):
    """By name: of /proc/net/netstat and /proc/net/snmp."""
    found = {}
    for text in (files["netstat"], files["snmp"]):
        lines = text.splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            if names.split(":")[0] in ("Tcp", "TcpExt"):
                found |= dict(zip(names.split()[1:], map(int, values.split()[1:])))
    return found


def port_counters(text):
    """By port: of /proc/net/dev."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, values = line.partition(":")
        values = list(map(int, values.split()))
        found[name.strip()] = {"received": values[0], "received_packets": values[1], "sent": values[8], "sent_packets": values[9]}
    return found
