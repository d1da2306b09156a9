"""iperf3 on the best rail: a stream one way over one path, as its users have it.

It plays no ping-pong, so it stands beside messages of 64 MiB and longer only.
"""

import contextlib
import json
import subprocess

from multirail_experiments.peers.common import LIMIT_S, best_rail, messages, missing

NAME = "iperf3"
PORT = 7814
STREAMS = (1, 4, 8)
LEAST_BYTES = 64 << 20
# The first second does not count, while congestion windows open.
OMIT_S = 1
MAX_S = 3


def available(_lab):
    return missing("iperf3")


class Session:
    def __init__(self, lab):
        self.lab = lab

    def measure(self, message_bytes, seconds):
        return (
            [self.stream(message_bytes, seconds, streams) for streams in STREAMS]
            if message_bytes >= LEAST_BYTES
            else []
        )

    def stream(self, message_bytes, seconds, streams):
        lab, rail, seconds = self.lab, best_rail(self.lab), min(seconds, MAX_S)
        with lab.start(
            "b",
            "iperf3",
            "-s",
            "-1",
            "-p",
            PORT,
            ready=lab.listens("b", PORT),
            stderr=subprocess.DEVNULL,
        ):
            done = lab.run(
                "a",
                "iperf3",
                "-J",
                "-c",
                lab.address("b", rail),
                "-B",
                lab.address("a", rail),
                "-p",
                PORT,
                "-P",
                streams,
                "-t",
                seconds,
                "-O",
                OMIT_S,
                timeout=LIMIT_S,
                check=False,
                stderr=subprocess.PIPE,
            )
        said = json.loads(done.stdout)
        end = said.get("end", {})
        if "sum_received" not in end:
            raise RuntimeError(f"iperf3: {said.get('error', done.stderr)}")
        received, busy_percent = end["sum_received"], end["cpu_utilization_percent"]
        cpu_s = (
            (busy_percent["host_total"] + busy_percent["remote_total"]) / 100 * received["seconds"]
        )
        return {
            "line": f"{NAME} -P {streams}",
            "message_bytes": message_bytes,
            "stream_s": seconds,
            "effective_mbit_s": received["bits_per_second"] / 1e6,
            "cpu_s_per_gib": cpu_s / (received["bytes"] / (1 << 30)),
        }


@contextlib.contextmanager
def session(lab):
    yield Session(lab)


messages = messages(NAME, session)
