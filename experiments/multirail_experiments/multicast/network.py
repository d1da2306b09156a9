"""Networks of clusters: a `multirail lab` with hosts a0, a1, … b0, …, and processes on them."""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from typing import NamedTuple

from multirail_experiments.host import process_cpu_s
from multirail_experiments.lab import END_S, Lab, end, mbit_s
from multirail_experiments.multicast import bound as multicast_bound
from multirail_experiments.multicast import scenario

# The first cluster's hosts are 10.80.0.2, 10.80.0.3, and so on.
FIRST_NETWORK = 80
# 64 processes share two processors when they start.
READY_S = 60
LIST_TRIES = 5
# Sets every route again as it is, with a congestion control.
CHANGE_ROUTES = (
    "ip -4 -oneline route show | while read -r route; "
    "do ip -4 route change $route congctl {control} || exit 1; done"
)


class Host(NamedTuple):
    name: str
    cluster: str
    address: str
    # On each rail; the first one is `address`.
    addresses: tuple[str, ...]


def access_bytes_s(network):
    """What the hosts of each cluster can send to other clusters; None without a limit."""
    if "access" not in network:
        return None
    return {
        cluster: count * mbit_s(network["access"]) * 125_000
        for cluster, count in network["clusters"].items()
    }


def memory_peak_bytes(pid):
    """The peak memory of a process; 0 if it has ended."""
    with contextlib.suppress(OSError, StopIteration), open(f"/proc/{pid}/status") as status:
        return next(int(row.split()[1]) << 10 for row in status if row.startswith("VmHWM"))
    return 0


class Clusters(Lab):
    """Clusters joined by a full mesh of links; a context manager.

    `network` is a table of plan.toml with `name` and `clusters`, such as {"a": 4}. It may have
    `delay` (one way, of all links), `queue`, `access` (what a host may send to and receive from
    other clusters) and `congestion` (of all hosts). `rates` are kbit/s by pair of clusters.
    """

    def __init__(self, multirail, network, rates):
        super().__init__(multirail, {**network, "rails": []})
        self.clusters, self.rates = network["clusters"], rates
        self.hosts = [
            Host(f"{cluster}{number}", cluster, address, (address,))
            for place, (cluster, count) in enumerate(self.clusters.items())
            for number in range(count)
            for address in [f"10.{FIRST_NETWORK + place}.{number // 250}.{number % 250 + 2}"]
        ]

    @property
    def root(self):
        """The first host of the first cluster."""
        return self.hosts[0]

    def _network_flags(self):
        flags = [
            "--clusters",
            ",".join(f"{cluster}={count}" for cluster, count in self.clusters.items()),
        ]
        for word in scenario.link_words(self.rates):
            flags += ["--link", word]
        for key in ("delay", "queue", "access"):
            if key in self.network:
                flags += [f"--{key}", self.network[key]]
        return flags

    def bound_s(self, events, size_bytes):
        """Seconds before which some cluster is incomplete; None with one cluster."""
        if len(self.clusters) == 1:
            return None
        return multicast_bound.bound_s(
            scenario.directed(events), self.root.cluster, size_bytes, access_bytes_s(self.network)
        )

    def _set_congestion(self):
        """Sets congestion control by route, with one command a host, as there may be 64."""
        control = self.network.get("congestion")
        if control is None:
            return
        for host in self.hosts:
            done = self.run(
                host.name,
                "sh",
                "-c",
                CHANGE_ROUTES.format(control=control),
                check=False,
                stderr=subprocess.PIPE,
            )
            if done.returncode != 0:
                raise RuntimeError(f"congestion control {control}: {done.stderr.strip()}")

    def folder(self, host):
        """A host's own folder, in memory."""
        path = self.work / "hosts" / host.name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def set_rates(self, rates):
        words = scenario.link_words(rates)
        self._lab("set", *itertools.chain.from_iterable(("--link", word) for word in words))

    def links(self):
        """Frame bytes, packets and drops of each direction, such as ("a", "b"), since the lab is
        up.
        """
        found = {}
        for left in reversed(range(LIST_TRIES)):
            try:
                listed = self._lab("list", "--json")
                break
            except RuntimeError:
                # Another lab of this machine may have gone down meanwhile.
                if left == 0:
                    raise
        for row in map(json.loads, listed.splitlines()):
            if (row["kind"], row["lab"]) == ("link", self.name):
                for way in row["directions"]:
                    found[way["from"], way["to"]] = {
                        key: way[key] for key in ("bytes", "packets", "drops")
                    }
        return found

    @contextlib.contextmanager
    def playing(self, events):
        """Yields a function from whose call on the links change as `events` say."""
        text, player = scenario.play_file(events), []
        path = self.work / "play"

        def begin():
            if text is not None and not player:
                path.write_text(text)
                player.append(
                    subprocess.Popen(
                        [self.multirail, "lab", "play", "--name", self.name, path],
                        start_new_session=True,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )

        try:
            yield begin
            if player and player[0].poll() not in (None, 0):
                raise RuntimeError(f"multirail lab play: {player[0].stderr.read().strip()}")
        finally:
            for process in player:
                end(process)
                process.stderr.close()

    @contextlib.contextmanager
    def peers(self, command_of, hosts=None, ready=None, log=None, ready_s=READY_S):
        """Runs a process on each host (default: all); `command_of(host)` is its command line.

        Returns when all have printed a line that begins with `ready`. `Peers.next` returns what
        they print. All end with the block.
        """
        hosts = self.hosts if hosts is None else hosts
        peers = Peers(self, command_of, log or self.work / "peers.log")
        try:
            for host in hosts:
                peers.start(host)
            if ready is not None:
                peers.wait_for(ready, len(hosts), ready_s)
            yield peers
        finally:
            peers.end()


class Peers:
    """Processes by the name of their host."""

    def __init__(self, net, command_of, log):
        self.net, self.command_of = net, command_of
        self.log = open(log, "a+")  # noqa: SIM115 (closed by `end`)
        self.processes, self.lines = {}, queue.Queue()
        # CPU time of processes that have ended, and of the running ones at the last `reset_cpu`.
        self._ended_cpu_s, self._before_cpu_s = 0.0, 0.0

    def start(self, host):
        process = subprocess.Popen(
            self.net.on(host.name, *self.command_of(host)),
            start_new_session=True,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        self.processes[host.name] = process
        threading.Thread(target=self._read, args=(host.name, process), daemon=True).start()

    def _read(self, name, process):
        with contextlib.suppress(ValueError):
            for line in process.stdout:
                self.lines.put((name, line.strip()))
        self.lines.put((name, None))

    def tell(self, words, hosts=None):
        for name, process in self.processes.items():
            if hosts is None or name in hosts:
                process.stdin.write(f"{words}\n")
                process.stdin.flush()

    def next(self, until):
        """The next line of any process as (host, line), before a point of `time.monotonic`.

        A process that ends unasked is an error.
        """
        try:
            name, line = self.lines.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            raise TimeoutError("took too long") from None
        if line is None:
            raise RuntimeError(f"{name} ended: {self.errors()}")
        return name, line

    def wait_for(self, word, count, seconds):
        """Waits until `count` hosts have printed a line that begins with a word.

        Returns what follows the word, by host.
        """
        found, until = {}, time.monotonic() + seconds
        while len(found) < count:
            name, line = self.next(until)
            if line.split(" ")[0] == word:
                found[name] = line[len(word) :].strip()
        return found

    def errors(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read().strip()[-300:]

    def kill(self, name):
        """Kills a host's process at once, as if the host had died."""
        process = self.processes.pop(name)
        with contextlib.suppress(OSError):
            self._ended_cpu_s += process_cpu_s(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _cpu_s(self):
        total = self._ended_cpu_s
        for process in self.processes.values():
            with contextlib.suppress(OSError, IndexError):
                total += process_cpu_s(process.pid)
        return total

    def reset_cpu(self):
        self._before_cpu_s = self._cpu_s()

    def cpu_s(self):
        """CPU seconds of all processes since `reset_cpu`."""
        return self._cpu_s() - self._before_cpu_s

    def memory_peak_bytes(self):
        """The peak memory of each process, by host."""
        return {name: memory_peak_bytes(process.pid) for name, process in self.processes.items()}

    def finish(self):
        """Closes the input of all processes, so that they end by themselves."""
        until = time.monotonic() + END_S
        for process in self.processes.values():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.stdin.close()
                process.wait(max(until - time.monotonic(), 0.01))

    def end(self):
        """Ends all processes at once, so that 64 do not wait for each other."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + END_S
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.01))
            end(process)
            with contextlib.suppress(OSError):
                process.stdin.close()
        self.log.close()
