"""Copies beside a stream in the foreground, and alone; all send from host b to host a.

    seconds, quick_seconds   the length of the stream
    lead_s                   how long a copy runs before the stream starts
    long_load                the file that is copied beside the stream; the copy must outlast it
    load, quick_load         the file that is copied alone
    repeats                  rounds; each measures every line

The stream is one connection of iperf3 with CUBIC. A copy that runs beside it is ended after it.
"""

import contextlib
import json
import subprocess
import time

from multirail_experiments.host import Cpu, is_limit
from multirail_experiments.lab import Lab
from multirail_experiments.peers import cp, cp_background, files
from multirail_experiments.plan import DEFAULT_REPEATS, QUICK_REPEATS

STREAM, STREAM_PORT = "iperf3", 7816
CONGESTION = "cubic"
# What a stream may take longer than its seconds.
SLACK_S = 40


def measure(plan, multirail, quick, emit):
    """Emits the plan, then a row for each network and line."""
    table = plan.table
    emit({"kind": "plan", "name": plan.name, "quick": quick, **table})
    seconds = table["quick_seconds" if quick else "seconds"]
    alone = table["quick_load" if quick else "load"]
    repeats = QUICK_REPEATS if quick else table.get("repeats", DEFAULT_REPEATS)
    for network in plan.networks_measured(quick):
        with (
            Lab(multirail, network) as lab,
            files.Source([alone, table["long_load"]]) as source,
            contextlib.ExitStack() as servers,
        ):
            lines = [
                line
                for module in (cp, cp_background)
                for line in servers.enter_context(module.serving(lab, source))
            ]
            load, long_load = source.loads
            found = {}
            for _ in range(repeats):
                for key, values in round_of(lab, source, lines, load, long_load, seconds, table):
                    found.setdefault(key, []).append(values)
        for (kind, line), values in found.items():
            emit({"kind": kind, "network": network["name"], "line": line, **row(values)})


def round_of(lab, source, lines, load, long_load, seconds, table):
    """One round: the kind and the line of each measurement, and its values."""
    yield ("stream", ""), busy(lambda: stream(lab, seconds))
    for line, command in lines:
        with source.target() as target, copying(lab, command(long_load, target)) as process:
            time.sleep(table["lead_s"])
            values = busy(lambda: stream(lab, seconds))
            if process.poll() is not None:
                raise RuntimeError(f"{line} ended with {process.returncode} before the stream")
        yield ("stream", line), values
    for line, command in lines:
        taken, used = files.copy(lab, source, load, command)
        yield ("copy", line), {"mbit_s": 8e-6 * load.bytes / taken, **used}


def copying(lab, command):
    return lab.start("a", *command, stderr=subprocess.DEVNULL)


def busy(measurement):
    cpu = Cpu()
    return {**measurement(), **cpu.take()}


def row(values):
    """Values of all rounds as lists, and whether the CPU was the limit."""
    share = round(sum(one.pop("cpu_idle_share") for one in values) / len(values), 3)
    lists = {key: [round(one[key], 2) for one in values] for key in values[0]}
    return {**lists, "cpu_idle_share": share, "cpu_was_limit": is_limit(share)}


def stream(lab, seconds):
    """The rate at host a, and the mean round trip and resent segments at host b."""
    server = ["iperf3", "-s", "-1", "-p", STREAM_PORT]
    client = ["iperf3", "-J", "-c", lab.address("a", 0), "-B", lab.address("b", 0)]
    client += ["-p", STREAM_PORT, "-t", seconds, "-C", CONGESTION]
    pipes = {"stderr": subprocess.PIPE, "check": False, "timeout": seconds + SLACK_S}
    ready = lab.listens("a", STREAM_PORT)
    with lab.start("a", *server, ready=ready, stderr=subprocess.DEVNULL):
        done = lab.run("b", *client, **pipes)
    return stream_values(json.loads(done.stdout))


def stream_values(said):
    if "sum_received" not in said.get("end", {}):
        raise RuntimeError(f"{STREAM}: {said.get('error', 'it printed no result')}")
    end = said["end"]
    sender = end["streams"][0]["sender"]
    return {
        "mbit_s": end["sum_received"]["bits_per_second"] / 1e6,
        "rtt_ms": sender["mean_rtt"] / 1e3,
        "resent_segments": sender["retransmits"],
    }
