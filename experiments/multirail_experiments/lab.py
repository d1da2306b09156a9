"""Test networks of a few hosts: a `multirail lab`, and processes on its hosts.

Everything that is started here is ended here, also on Ctrl-C. Processes have sessions of their own,
so only this program gets the signal. It ends them one by one and then removes the lab.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import string
import subprocess
import tempfile
import threading
import time

from multirail_experiments.plan import size_bytes

HOSTS = ("a", "b")
# Keys with one value a rail, as `multirail lab up` takes them.
RAIL_KEYS = ("delay", "loss", "jitter", "queue")
UNITS_MBIT = {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3}
# Seconds within which a process must be ready, and must end after it was asked to.
READY_S, END_S = 10, 5

_names = itertools.count()


def mbit_s(rate):
    """A lab's rate as a number: "2.5gbit" is 2500; "-", as fast as the machine, is None."""
    if rate == "-":
        return None
    number, unit = re.fullmatch(r"([0-9.]+)([a-z]+)", rate).groups()
    return float(number) * UNITS_MBIT[unit]


class Lab:
    """Hosts, usually two, a and b, joined by rails; a context manager.

    `network` is a table of plan.toml with `name` and `rails`, such as ["100mbit", "25mbit"]. It may
    have `hosts` (their number, if not two: a, b, c and so on), `delay`, `loss`, `jitter` and
    `queue` (lists with one value a rail), `sysctl` (a table, for all hosts), `window` (the largest
    socket buffer, either way) and `congestion` (the congestion control of all hosts).
    """

    def __init__(self, multirail, network):
        self.multirail = str(multirail)
        self.network = network
        self.hosts = string.ascii_lowercase[: network.get("hosts", len(HOSTS))]
        self.rails = len(network["rails"])
        self.rates_mbit_s = [mbit_s(rate) for rate in network["rails"]]
        self.name = f"exp-{os.getpid()}-{next(_names)}"

    def __enter__(self):
        # The folder is in memory, so that no disk is measured.
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="multirail-experiment-", dir="/dev/shm"))
        self.token_file = self.work / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_bytes(os.urandom(16).hex().encode())
        try:
            self._lab("up", *self._network_flags())
            self._set_congestion()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._lab("down", check=False)
        shutil.rmtree(self.work, ignore_errors=True)

    def _network_flags(self):
        flags = ["--hosts", ",".join(self.hosts), "--rails", ",".join(self.network["rails"])]
        for key in RAIL_KEYS:
            if key in self.network:
                flags += [f"--{key}", ",".join(map(str, self.network[key]))]
        sysctls = dict(self.network.get("sysctl", {}))
        if "window" in self.network:
            window = size_bytes(self.network["window"])
            sysctls |= {
                f"net.ipv4.tcp_{buffer}": f"4096 {window} {window}" for buffer in ("rmem", "wmem")
            }
        for key, value in sysctls.items():
            flags += ["--sysctl", f"{key}={value}"]
        return flags

    def _set_congestion(self):
        """Sets congestion control by route.

        A namespace can select only what the machine allows to all programs.
        """
        if "congestion" not in self.network:
            return
        for rail, host in itertools.product(range(self.rails), self.hosts):
            address = self.address(host, rail)
            network = ["-4", f"{address.rpartition('.')[0]}.0/24"], ["-6", f"fd77:0:0:{rail}::/64"]
            ways = ["scope", "link", "src", address], ["metric", 256]
            for (family, prefix), way in zip(network, ways):
                done = self.run(
                    host,
                    "ip",
                    family,
                    "route",
                    "change",
                    prefix,
                    "dev",
                    self.port(rail),
                    "proto",
                    "kernel",
                    *way,
                    "congctl",
                    self.network["congestion"],
                    check=False,
                    stderr=subprocess.PIPE,
                )
                if done.returncode != 0:
                    raise RuntimeError(
                        f"congestion control {self.network['congestion']}: {done.stderr.strip()}"
                    )

    def counters(self, rail):
        """Counters of host a's packets on a rail with delay or loss; empty for other rails."""
        listed = map(json.loads, self._lab("list", "--json").splitlines())
        counters = next(
            row["counters"]
            for row in listed
            if (row["kind"], row["lab"], row.get("rail")) == ("rail", self.name, rail)
        )
        return next((row for row in counters if row["host"] == "a" and not row["to_host"]), {})

    def _lab(self, command, *arguments, check=True):
        name = [] if command == "list" else ["--name", self.name]
        done = subprocess.run(
            [self.multirail, "lab", command, *name, *map(str, arguments)],
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"multirail lab {command}: {done.stderr.strip()}")
        return done.stdout

    def address(self, host, rail):
        return f"10.77.{rail}.{self.hosts.index(host) + 1}"

    def port(self, rail):
        """The name of the hosts' network interface on a rail."""
        return f"rail{rail}"

    def set(self, rail, **changes):
        """Changes a rail of a running lab: set(1, rate="10mbit"), set(1, cut=True), set(1,
        up=True).
        """
        flags = []
        for key, value in changes.items():
            flags += [f"--{key}"] if value is True else [f"--{key}", str(value)]
        self._lab("set", rail, *flags)

    def on(self, host, *command):
        """The command line that runs a command on a host.

        `lab exec` becomes the command, so that its process is the command's own.
        """
        return [self.multirail, "lab", "exec", "--name", self.name, host, "--", *map(str, command)]

    def run(self, host, *command, **options):
        """Runs a command on a host to its end and returns what subprocess.run returns.

        Output is text, and a failure raises, unless options say otherwise.
        """
        options = {"check": True, "stdout": subprocess.PIPE, "text": True, **options}
        return subprocess.run(self.on(host, *command), start_new_session=True, **options)

    @contextlib.contextmanager
    def start(self, host, *command, ready=None, **options):
        """Starts a process on a host; it ends with the block, together with its children.

        `ready` is text that a line of its output contains, or a function that says whether it is
        ready (see `listens`). Options are those of subprocess.Popen; output is dropped by default.
        """
        words = ready if isinstance(ready, str) else None
        options = {
            "stdout": subprocess.DEVNULL if words is None else subprocess.PIPE,
            "text": True,
            **options,
        }
        process = subprocess.Popen(self.on(host, *command), start_new_session=True, **options)
        try:
            if words is not None:
                _wait_for_words(process, words)
            elif ready is not None:
                _wait_until(process, ready)
            yield process
        finally:
            end(process)

    def listens(self, host, port):
        """For `start(ready=…)`: whether a process of the host listens on a TCP port."""
        wanted = f":{port:04X}"

        def ready():
            table = self.run(host, "cat", "/proc/net/tcp", "/proc/net/tcp6").stdout
            rows = (line.split() for line in table.splitlines())
            return any(row[1].endswith(wanted) and row[3] == "0A" for row in rows if len(row) > 3)

        return ready

    @contextlib.contextmanager
    def serve(self, root):
        """Runs `multirail serve` on host b; clients need `self.token_file`."""
        command = [self.multirail, "serve", "--root", root, "--token-file", self.token_file]
        with (
            open(self.work / "serve.log", "w") as log,
            self.start("b", *command, ready="", stderr=log) as process,
        ):
            yield process


def _wait_for_words(process, words):
    """Waits for a line with certain words; drops later lines so that the process never blocks."""
    found = threading.Event()

    def read():
        with contextlib.suppress(ValueError):
            for line in process.stdout:
                if words in line:
                    found.set()

    threading.Thread(target=read, daemon=True).start()
    _wait_until(process, found.is_set)


def _wait_until(process, ready):
    command = " ".join(process.args[process.args.index("--") + 1 :][:2])
    deadline = time.monotonic() + READY_S
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"{command} ended with {process.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{command} was not ready after {READY_S} s")
        time.sleep(0.02)


def end(process):
    """Ends a process that has a session of its own, and everything left in that session."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            # Children may have outlived the process.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return
