"""redis-benchmark: `clients`, `requests` of SET and as many of GET, values of `value_bytes`.

The value is requests a second. With `beside_s`, one connection of iperf3 from host a to host b runs
for that long beside it, and the value is the 99th percentile of the time of a SET.
"""

import contextlib
import csv
import io
import shlex
import subprocess

from multirail_experiments.peers.common import best_rail, missing

PORT, STREAM_PORT = 6379, 5202
LIMIT_S = 120
# How long the stream runs before the first request.
LEAD_S = 1


def unit(load):
    return "ms" if "beside_s" in load else "requests/s"


def lacks():
    return missing("redis-server", "redis-benchmark", "iperf3")


@contextlib.contextmanager
def serving(lab, load):
    address = lab.address("b", best_rail(lab))
    server = ["redis-server", "--port", PORT, "--protected-mode", "no"]
    client = ["redis-benchmark", "-h", address, "-p", PORT, "-c", load["clients"], "--csv"]
    client += ["-n", load["requests"], "-d", load["value_bytes"]]
    pipes = {"stderr": subprocess.PIPE, "timeout": LIMIT_S}

    def once():
        rows = table(lab.run("a", *client, "-t", "set,get", **pipes).stdout)
        return 2 / sum(1 / float(row["rps"]) for row in rows)

    def beside():
        stream = ["iperf3", "-c", address, "-p", STREAM_PORT, "-t", load["beside_s"]]
        words = [*client, "-t", "set"]
        script = (
            f"{shell(stream)} > /dev/null & sleep {LEAD_S} && {shell(words)} && kill $! && wait"
        )
        [row] = table(lab.run("a", "sh", "-c", script, **pipes).stdout)
        return float(row["p99_latency_ms"])

    with (
        lab.start("b", *server, "--save", "", ready=lab.listens("b", PORT)),
        lab.start("b", "iperf3", "-s", "-p", STREAM_PORT, ready=lab.listens("b", STREAM_PORT)),
    ):
        yield beside if "beside_s" in load else once


def table(said):
    return list(csv.DictReader(io.StringIO(said)))


def shell(words):
    return shlex.join(map(str, words))
