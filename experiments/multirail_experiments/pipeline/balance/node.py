"""Nodes that sleep instead of computing, in other programs than ours.

The rule is that of the example datacutter, crates/multirail/examples/datacutter/filters.rs.
"""

import ctypes
import json
import os
import subprocess
import sys
import time

from multirail_experiments.paths import EDGES_PACKAGES, HOME, PYTHON

NODES = 3
SHORTEST_NAP_S = 60e-6
PR_SET_TIMERSLACK = 29


class Node:
    def __init__(self, copy, ns_per_byte, factor):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
        self.ns_per_byte = ns_per_byte * (factor if copy == 1 else 1)
        self.busy_until, self.overslept = time.monotonic(), 0.0

    def compute(self, count):
        now = time.monotonic()
        self.busy_until = (
            max(self.busy_until, now - self.overslept) + count * self.ns_per_byte / 1e9
        )
        self.overslept = 0.0
        if self.busy_until > now + SHORTEST_NAP_S:
            time.sleep(self.busy_until - now)
            self.overslept = time.monotonic() - self.busy_until


def row(job, took_s, blocks):
    work = job["measure"]["balance"]
    slowness = 1 + work["probability"] * (work["factor"] - 1)
    ideal_ms = work["total_bytes"] * job["compute_ns_per_byte"] / 1e6 / (NODES - 1 + 1 / slowness)
    return {"measured": "balance", "took_ms": took_s * 1e3, "blocks": blocks, "ideal_ms": ideal_ms}


def run_as_program(module, job):
    """Runs a module as a program, with the libraries of `scripts/setup edges`."""
    done = subprocess.run(
        [PYTHON, "-B", "-m", module],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": f"{HOME}:{EDGES_PACKAGES}",
            "RAY_USAGE_STATS_ENABLED": "0",
        },
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-300:])
    return [json.loads(done.stdout.splitlines()[-1])]


def job_of_stdin():
    return json.load(sys.stdin)
