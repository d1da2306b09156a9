"""iperf3: `seconds` or `bytes`, `connections`, and `reverse` for data from host b.

The rate is the bytes that the receiver has counted, over the time of the user's command.
"""

import contextlib
import json
import subprocess
import time

from multirail_experiments.peers.common import best_rail, missing
from multirail_experiments.plan import size_bytes

PORT = 5201
# What a command may take.
LIMIT_S = 120


def unit(_load):
    return "Mbit/s"


def lacks():
    return missing("iperf3")


@contextlib.contextmanager
def serving(lab, load):
    client = ["iperf3", "-J", "-c", lab.address("b", best_rail(lab)), "-p", PORT]
    client += ["-P", load.get("connections", 1), *(["-R"] if load.get("reverse") else [])]
    client += ["-n", size_bytes(load["bytes"])] if "bytes" in load else ["-t", load["seconds"]]

    def once():
        began = time.monotonic()
        done = lab.run("a", *client, stderr=subprocess.PIPE, check=False, timeout=LIMIT_S)
        return 8e-6 * moved_bytes(done.stdout, done.stderr) / (time.monotonic() - began)

    with lab.start("b", "iperf3", "-s", "-p", PORT, ready=lab.listens("b", PORT)):
        yield once


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
