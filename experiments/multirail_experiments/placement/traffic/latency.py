"""A ping-pong of small messages between two hosts, alone and beside streams.

The program is experiments/c/pingpong.c; the streams are as fast as they can.

    [latency]   message_bytes, beside (numbers of streams between the same hosts), seconds,
                warm_up_s
"""

import statistics
import subprocess

from multirail_experiments.peers.common import Client, program
from multirail_experiments.placement.network import Stream

PORT = 7841
SECONDS, WARM_UP_S = 1.5, 0.7
QUICK_SECONDS, QUICK_WARM_UP_S = 0.4, 0.4
# Each measurement takes up to a quarter of a second and some set-up; as many as fit are made.
MEASUREMENT_S = 0.3


def rows(net, loads, table, quick):
    seconds, warm_up_s = (
        (QUICK_SECONDS, QUICK_WARM_UP_S)
        if quick
        else (table.get("seconds", SECONDS), table.get("warm_up_s", WARM_UP_S))
    )
    one, other = net.hosts[:2]
    pingpong = program("pingpong")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        net.start(other.name, pingpong, "server", "0.0.0.0", PORT, *loads.options, ready="ready"),
        net.start(
            one.name, pingpong, "client", loads.address(other), PORT, *loads.options, **pipes
        ) as process,
    ):
        client = Client(process, "pingpong")
        for count in table["beside"]:

            def measure():
                return [
                    client.measure(table["message_bytes"], None)[0]
                    for _ in range(max(round(seconds / MEASUREMENT_S), 1))
                ]

            # Streams and ping have the same two hosts, so that they meet at the same ports.
            run, found = loads.run(
                [Stream(one, other, count)] if count else [], warm_up_s, seconds, measure
            )
            yield {
                "pattern": "ping-pong",
                "streams": count,
                "rtt_us": round(statistics.median(row["rtt_us_mean"] for row in found), 2),
                "rtt_us_p99": round(statistics.median(row["rtt_us_p99"] for row in found), 2),
                "beside_mbit_s": round(sum(run.rates_mbit_s()), 1),
                "cpu_idle_share": run.cpu_idle_share,
            }
        client.close()
