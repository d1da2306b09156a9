"""UCX over TCP on all rails: ucx_perftest's tag matching ping-pong (tag_lat).

Each measurement is a process of its own. The number of rounds must be known before, so it comes
from the rate of the fastest rail. CPU time is not reported.

UCX 1.13 gives a connection to each device. Where devices look alike, it connects several of them to
the same address of the peer, and one rail carries everything (openucx/ucx issue 9763). An MTU that
differs by one byte is enough to tell them apart, so rails have that during the measurement.
"""

import contextlib
import subprocess

from multirail_experiments.peers.common import (
    LIMIT_S,
    best_rail,
    delay_ms,
    effective_mbit_s,
    messages,
    missing,
)

NAME = "ucx"
PORT = 7813
MAX_RAILS = 4
MTU = 1500
# The same values as in rounds.h.
WARM_UP_ROUNDS, WARM_UP_S = 3, 1.0
MEASURE_S, MIN_ROUNDS, LONG_ROUND_S, MAX_ROUNDS = 0.25, 3, 1.0, 2000
# The rate of rails without one, and what a round trip takes in addition.
UNSHAPED_MBIT_S, ROUND_US = 4000, 100


def available(_lab):
    return missing("ucx_perftest")


def rounds(lab, message_bytes):
    """Rounds that do not count, and rounds that do."""
    rail = best_rail(lab)
    rate = lab.rates_mbit_s[rail] or UNSHAPED_MBIT_S
    round_s = 2 * (8e-6 * message_bytes / rate + delay_ms(lab, rail) / 1e3) + ROUND_US / 1e6
    warm_up = min(WARM_UP_ROUNDS, 1 + int(WARM_UP_S / round_s))
    least = 1 if round_s > LONG_ROUND_S else MIN_ROUNDS
    return warm_up, max(least, min(MAX_ROUNDS, int(MEASURE_S / round_s)))


@contextlib.contextmanager
def told_apart(lab):
    def set_all(difference):
        links = "\n".join(
            f"link set {lab.port(rail)} mtu {MTU - rail * difference}" for rail in range(lab.rails)
        )
        for host in ("a", "b"):
            lab.run(host, "ip", "-batch", "-", input=links)

    set_all(1)
    try:
        yield
    finally:
        set_all(0)


class Session:
    def __init__(self, lab):
        self.lab = lab
        rails = min(lab.rails, MAX_RAILS)
        devices = ",".join(lab.port(rail) for rail in range(lab.rails))
        self.environment = [
            "env",
            "UCX_TLS=tcp",
            f"UCX_NET_DEVICES={devices}",
            f"UCX_MAX_EAGER_RAILS={rails}",
            f"UCX_MAX_RNDV_RAILS={rails}",
        ]

    def measure(self, message_bytes, _seconds):
        lab, (warm_up, counted) = self.lab, rounds(self.lab, message_bytes)
        address = lab.address("b", best_rail(lab))
        with (
            told_apart(lab),
            lab.start(
                "b", *self.environment, "ucx_perftest", "-p", PORT, ready=lab.listens("b", PORT)
            ),
        ):
            done = lab.run(
                "a",
                *self.environment,
                "ucx_perftest",
                address,
                "-p",
                PORT,
                "-t",
                "tag_lat",
                "-s",
                message_bytes,
                "-w",
                warm_up,
                "-n",
                counted,
                "-f",
                "-v",
                timeout=LIMIT_S,
                check=False,
                stderr=subprocess.PIPE,
            )
        # Columns: iterations, a percentile, the average since the last report, the average of all.
        # Times are half round trips.
        values = (
            done.stdout.strip().splitlines()[-1].split(",")
            if done.returncode == 0 and done.stdout.strip()
            else []
        )
        if len(values) < 4:
            raise RuntimeError(f"ucx_perftest: {(done.stderr or done.stdout).strip()[-300:]}")
        rtt_us = 2 * float(values[3])
        return [
            {
                "line": NAME,
                "message_bytes": message_bytes,
                "rounds": counted,
                "rtt_us_mean": rtt_us,
                "effective_mbit_s": effective_mbit_s(message_bytes, rtt_us),
            }
        ]


@contextlib.contextmanager
def session(lab):
    yield Session(lab)


messages = messages(NAME, session)
