"""Multipath TCP of the kernel: experiments/c/pingpong.c on a socket of protocol 262.

There is a subflow on every rail: the server's kernel announces its address on each further rail,
and the client's kernel joins from its own address there. Rows have the number of subflows at the
end of the measurement.
"""

import contextlib
import pathlib
import subprocess
import time

from multirail_experiments.peers.common import best_rail, client, messages, missing, program

NAME = "mptcp"
PORT = 7811
LIMIT = 8
# The path managers exchange messages for some round trips until all subflows exist.
JOIN_S = 5
FIRST_BYTES = 1024


def available(lab):
    if not pathlib.Path("/proc/sys/net/mptcp/enabled").exists():
        return "the kernel has no MPTCP"
    if (
        lab.run(
            "a", "ip", "mptcp", "endpoint", "show", check=False, stderr=subprocess.DEVNULL
        ).returncode
        != 0
    ):
        return "ip has no mptcp"
    return missing("cc", "ss")


def subflows(lab):
    listed = lab.run("a", "ss", "-Htni", "state", "established", "dport", "=", f":{PORT}").stdout
    return listed.count("tcp-ulp-mptcp")


class Joined:
    def __init__(self, lab, opened):
        self.lab, self.opened = lab, opened

    def join(self):
        deadline = time.monotonic() + JOIN_S
        self.opened.measure(FIRST_BYTES, None)
        while subflows(self.lab) < self.lab.rails and time.monotonic() < deadline:
            time.sleep(0.05)

    def measure(self, message_bytes, seconds):
        rows = self.opened.measure(message_bytes, seconds)
        return [{**row, "subflows": subflows(self.lab)} for row in rows]


@contextlib.contextmanager
def paths(lab, first):
    for host in ("a", "b"):
        lab.run(host, "ip", "mptcp", "limits", "set", "subflow", LIMIT, "add_addr_accepted", LIMIT)
    try:
        for rail in range(lab.rails):
            if rail != first:
                lab.run(
                    "b",
                    "ip",
                    "mptcp",
                    "endpoint",
                    "add",
                    lab.address("b", rail),
                    "dev",
                    lab.port(rail),
                    "signal",
                )
        yield
    finally:
        lab.run("b", "ip", "mptcp", "endpoint", "flush", check=False)


@contextlib.contextmanager
def session(lab):
    rail, pingpong = best_rail(lab), program("pingpong")
    # The server listens on all addresses, or the kernel refuses subflows to the others.
    server = [pingpong, "server", "0.0.0.0", PORT, "--mptcp"]
    words = [
        pingpong,
        "client",
        lab.address("b", rail),
        PORT,
        "--bind",
        lab.address("a", rail),
        "--mptcp",
    ]
    with (
        paths(lab, rail),
        lab.start("b", *server, ready="ready"),
        client(lab, NAME, *words) as opened,
    ):
        joined = Joined(lab, opened)
        joined.join()
        yield joined


messages = messages(NAME, session)
