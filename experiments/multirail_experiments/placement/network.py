"""Hosts with several ports: a `multirail lab`, and a load generator on each host."""

import contextlib
import json
import time
from typing import NamedTuple

from multirail_experiments.host import Cpu, is_limit
from multirail_experiments.lab import Lab, mbit_s
from multirail_experiments.multicast.network import Peers
from multirail_experiments.peers.common import program

PORT = 7840
# Time from the order to the start of streams, in which all hosts get it and connect.
LEAD_S = 0.25
# The longest time from a run's end to its answer.
ANSWER_S = 20
READY_S = 20


class Host(NamedTuple):
    name: str
    number: int


class Ports(Lab):
    """Hosts with several ports; a context manager.

    `network` is a table of plan.toml with `name`, `hosts`, `ports`, and `rate` or `port_rates` (a
    list); without either, ports are as fast as the machine. It may have `queue`, `trunk`, `sysctl`
    (a table) and `congestion`. What is compared may add options of `multirail lab up` (`flags`),
    sysctls, and another congestion control.
    """

    def __init__(self, multirail, network, flags=(), sysctl=None, congestion=None):
        super().__init__(
            multirail,
            {**network, "rails": [], **({"congestion": congestion} if congestion else {})},
        )
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
        """Sets congestion control by the route of every port that has a network."""
        if "congestion" not in self.network:
            return
        for host in self.hosts:
            for row in self.run(
                host.name, "ip", "-4", "route", "show", "proto", "kernel"
            ).stdout.splitlines():
                self.run(
                    host.name,
                    "ip",
                    "route",
                    "change",
                    *row.split(),
                    "proto",
                    "kernel",
                    "congctl",
                    self.network["congestion"],
                )

    def port_rows(self):
        """The rows of `lab list` for all ports."""
        listed = map(json.loads, self._lab("list", "--json").splitlines())
        return [row for row in listed if (row["kind"], row["lab"]) == ("port", self.name)]

    @contextlib.contextmanager
    def loads(self, *options):
        """Runs a load generator with these options on each host during the block."""
        # Sets congestion control again, since preparing a line may have replaced routes.
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
    """Streams of one kind from a host to another, as fast as they can or of messages at a rate."""

    source: Host
    target: Host
    count: int
    rate_mbit_s: float = 0
    message_bytes: int = 0


class Loads:
    """Runs of streams."""

    def __init__(self, net, peers, options):
        # The options of the load generator, which other programs of experiments/c have as well.
        self.net, self.peers, self.options = net, peers, options
        # The address at which a host is reached.
        self.address = net.address

    def run(self, streams, warm_up_s, seconds, meanwhile=None):
        """Runs all streams at once.

        `meanwhile()` is called when the measured time begins; its result is returned, too.
        """
        start = time.monotonic() + LEAD_S
        begin, end = start + warm_up_s, start + warm_up_s + seconds
        times = " ".join(str(round(at * 1e9)) for at in (start, begin, end))
        for host in self.net.hosts:
            words = [
                f"{self.address(s.target)}:{s.count}:{s.rate_mbit_s * 1e3:g}:{s.message_bytes}"
                for s in streams
                if s.source == host
            ]
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
    """What hosts reported of a run."""

    def __init__(self, net, streams, seconds, said, used):
        self.net, self.streams, self.seconds, self.said = net, streams, seconds, said
        self.cpu_idle_share = used["cpu_idle_share"]
        self.cpu_s = used["cpu_s"]
        self.cpu_was_limit = is_limit(self.cpu_idle_share)

    def rates_mbit_s(self):
        """The rate of each stream at its receiver; 0 for streams that delivered nothing."""
        found = []
        for target in self.net.hosts:
            got = [
                row["bytes"] * 8 / 1e6 / self.seconds for row in self.said[target.name]["received"]
            ]
            wanted = sum(stream.count for stream in self.streams if stream.target == target)
            found += got + [0.0] * (wanted - len(got))
        return found

    def backlogs(self, field):
        return [row[field] for host in self.net.hosts for row in self.said[host.name]["sent"]]

    def counter(self, *names):
        """The growth of TCP counters, on all hosts together."""
        return sum(
            after.get(name, 0) - before.get(name, 0)
            for before, after in map(self._tcp, self.net.hosts)
            for name in names
        )

    def _tcp(self, host):
        return [tcp_counters(self.said[host.name][when]) for when in ("before", "after")]

    def port_bytes(self, host, way):
        """Bytes that each port of a host sent or received; `way` is "sent" or "received"."""
        before, after = (
            port_counters(self.said[host.name][when]["dev"]) for when in ("before", "after")
        )
        return [after[port][way] - before[port][way] for port in self.net.ports]

    def packets(self):
        """Packets that all ports of all hosts sent."""
        return sum(self.port_count(host, "sent_packets") for host in self.net.hosts)

    def port_count(self, host, way):
        before, after = (
            port_counters(self.said[host.name][when]["dev"]) for when in ("before", "after")
        )
        return sum(after[port][way] - before[port][way] for port in self.net.ports)


def tcp_counters(files):
    """Counters by name, of /proc/net/netstat and /proc/net/snmp."""
    found = {}
    for text in (files["netstat"], files["snmp"]):
        lines = text.splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            if names.split(":")[0] in ("Tcp", "TcpExt"):
                found |= dict(zip(names.split()[1:], map(int, values.split()[1:])))
    return found


def port_counters(text):
    """Counters by port, of /proc/net/dev."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, values = line.partition(":")
        values = list(map(int, values.split()))
        found[name.strip()] = {
            "received": values[0],
            "received_packets": values[1],
            "sent": values[8],
            "sent_packets": values[9],
        }
    return found
