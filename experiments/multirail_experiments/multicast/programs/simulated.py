"""The simulator's prediction of `multirail bcast`: the example multicast_prediction.

Keys of a line: `method`, and `seeds`, how often it is simulated (the median counts).

The simulator gets what is known before a broadcast: clusters, the rates of links less the headers
of frames, their delay and the size of the file. It gets nothing that is measured. Networks whose
rates change or whose hosts have limits are not supported.
"""

import contextlib
import json
import pathlib
import re
import statistics
import subprocess

from multirail_experiments.multicast import scenario

# A full segment of TCP with timestamps, over its Ethernet frame.
PAYLOAD_SHARE = 1448 / 1514
UNITS_US = {"us": 1, "ms": 1000, "s": 1_000_000}


def program(net):
    return pathlib.Path(net.multirail).parent / "examples/multicast_prediction"


def available(net):
    if program(net).exists():
        return None
    return "no example: cargo build --release -p multirail-sim --example multicast_prediction"


def delay_us(network):
    """The one-way delay of a network's links."""
    number, unit = re.fullmatch(r"([0-9.]+)([a-z]+)", network.get("delay", "0ms")).groups()
    return round(float(number) * UNITS_US[unit])


def broadcast_of(network, events, size_bytes, line):
    """The input of the example."""
    if len(events) > 1 or "access" in network or network.get("rails"):
        raise ValueError(f"{network['name']} cannot be predicted")
    (_, rates), names = scenario.directed(events)[0], list(network["clusters"])
    return {
        "clusters": list(network["clusters"].values()),
        "link_bytes_s": [
            [PAYLOAD_SHARE * rates.get((one, other), 0) for other in names] for one in names
        ],
        "delay_us": delay_us(network),
        "total_bytes": size_bytes,
        "method": line["method"],
        "seeds": list(range(1, line.get("seeds", 1) + 1)),
    }


@contextlib.contextmanager
def session(net, line):
    yield Simulator(net, line)


class Simulator:
    """Simulates a broadcast each time; no host takes part."""

    def __init__(self, net, line):
        self.net, self.line = net, line

    def broadcast(self, file, begin, limit_s, point):
        size_bytes = file.stat().st_size
        path = self.net.work / "broadcast.json"
        path.write_text(
            json.dumps(
                broadcast_of(self.net.network, point.events(size_bytes), size_bytes, self.line)
            )
        )
        begin()
        done = subprocess.run(
            [program(self.net), path], capture_output=True, text=True, timeout=limit_s
        )
        if done.returncode != 0:
            raise RuntimeError(f"multicast_prediction: {done.stderr.strip()}")
        rows = [json.loads(text) for text in done.stdout.splitlines()]
        return {
            "seconds": statistics.median(row["seconds"] for row in rows),
            "setup_s": 0.0,
            "predicted_s": sorted(row["seconds"] for row in rows),
            "wan_copies": statistics.median(row["wan_copies"] for row in rows) / PAYLOAD_SHARE,
            "cpu_busy_share": 0.0,
            "cpu_s": 0.0,
            "piece_bytes": rows[0]["piece_bytes"],
            "received": [],
        }
