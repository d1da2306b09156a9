"""iperf3 as it is, by `mptcpize run` and by `multirail run`, from host a to host b.

    loads     what is moved: `name`, `bytes`, `connections`, `reverse` (from b to a), `networks`
    repeats   rounds; each measures every load with every line
    quick_bytes, quick_networks

A rate is the bytes that the receiver has counted, over the time of the user's command, from its
start to its end.
"""

import contextlib
import json
import subprocess
import time

from multirail_experiments.host import Cpu, is_limit
from multirail_experiments.lab import Lab
from multirail_experiments.peers import mptcp
from multirail_experiments.peers.common import best_rail, missing
from multirail_experiments.plan import DEFAULT_REPEATS, QUICK_REPEATS, size_bytes

PLAIN, MPTCP, RUN = "plain", "mptcpize run", "multirail run"
PORT = 5201
# What a command may take.
LIMIT_S = 120


def measure(plan, multirail, quick, emit):
    """Emits the plan, then a row for each network, load and line."""
    table = plan.table
    emit({"kind": "plan", "name": plan.name, "quick": quick, **table})
    repeats = QUICK_REPEATS if quick else table.get("repeats", DEFAULT_REPEATS)
    for network in plan.networks_measured(quick):
        loads = [load for load in table["load"] if network["name"] in load["networks"]]
        with Lab(multirail, network) as lab:
            found = {}
            for line, program in LINES.items():
                why = program.lacks(lab)
                if why is not None:
                    emit(
                        {"kind": "skipped", "network": network["name"], "line": line, "reason": why}
                    )
            lines = {line: program for line, program in LINES.items() if program.lacks(lab) is None}
            for _ in range(repeats):
                for load in loads:
                    count = size_bytes(table["quick_bytes"] if quick else load["bytes"])
                    for line, program in lines.items():
                        with program.serving(lab):
                            values = timed(lab, program.words(lab), load, count)
                        found.setdefault((load["name"], line), []).append(values)
        for (load, line), values in found.items():
            emit(
                {
                    "kind": "program",
                    "network": network["name"],
                    "load": load,
                    "line": line,
                    **row(values),
                }
            )


def timed(lab, words, load, count):
    """The rate of one command, and the CPU time of this machine meanwhile."""
    client = ["iperf3", "-J", "-c", lab.address("b", best_rail(lab)), "-p", PORT]
    client += [
        "-n",
        count,
        "-P",
        load.get("connections", 1),
        *(["-R"] if load.get("reverse") else []),
    ]
    pipes = {"stderr": subprocess.PIPE, "check": False, "timeout": LIMIT_S}
    cpu, began = Cpu(), time.monotonic()
    done = lab.run("a", *words, *client, **pipes)
    taken = time.monotonic() - began
    return {"mbit_s": 8e-6 * moved_bytes(done.stdout, done.stderr) / taken, **cpu.take()}


def moved_bytes(said, errors):
    """The bytes that the receiver of iperf3 has got."""
    try:
        end = json.loads(said)
    except json.JSONDecodeError:
        end = {}
    if "sum_received" not in end.get("end", {}):
        raise RuntimeError(
            f"iperf3: {end.get('error') or errors.strip() or 'it printed no result'}"
        )
    return end["end"]["sum_received"]["bytes"]


def row(values):
    """Values of all rounds as lists, and whether the CPU was the limit."""
    share = round(sum(one["cpu_idle_share"] for one in values) / len(values), 3)
    lists = {key: [round(one[key], 2) for one in values] for key in ("mbit_s", "cpu_s")}
    return {**lists, "cpu_idle_share": share, "cpu_was_limit": is_limit(share)}


class Plain:
    """TCP on the fastest rail."""

    def lacks(self, lab):
        return missing("iperf3")

    def words(self, lab):
        return []

    @contextlib.contextmanager
    def serving(self, lab):
        with lab.start("b", "iperf3", "-s", "-p", PORT, ready=lab.listens("b", PORT)):
            yield


class Mptcp(Plain):
    """Multipath TCP, which needs it on both hosts."""

    def lacks(self, lab):
        return missing("iperf3", "mptcpize") or mptcp.available(lab)

    def words(self, lab):
        return ["mptcpize", "run"]

    @contextlib.contextmanager
    def serving(self, lab):
        command = ["mptcpize", "run", "iperf3", "-s", "-p", PORT]
        with (
            mptcp.paths(lab, best_rail(lab)),
            lab.start("b", *command, ready=lab.listens("b", PORT)),
        ):
            yield


class Run(Plain):
    """`multirail run`, with a server on the other host. The session is made by each command."""

    def words(self, lab):
        return [lab.multirail, "run", "--require", "--token-file", lab.token_file, "--"]

    @contextlib.contextmanager
    def serving(self, lab):
        command = [
            lab.multirail,
            "serve",
            "--root",
            lab.work,
            "--token-file",
            lab.token_file,
            "--allow-forward",
        ]
        with (
            super().serving(lab),
            lab.start("b", *command, ready="", stderr=subprocess.DEVNULL),
        ):
            yield


LINES = {PLAIN: Plain(), MPTCP: Mptcp(), RUN: Run()}
