"""Rows of streams: steady rates, and what the number of channels that was found is worth."""

import itertools
import statistics
from typing import NamedTuple

from multirail_experiments.stream.measure import AUTO

# Payload on Ethernet of 100 Mbit/s.
LINK_MBIT_S = 95.6
# The number of channels must be found by this second.
FOUND_S = 3.0
# One channel is enough if no other number has a rate that is higher by more than this.
ENOUGH = 0.95
# Intervals hold too few messages of this length, so rates are those of the whole stream.
LONG_BYTES = 1 << 20


class Found(NamedTuple):
    """What `auto` did: medians of repeats, and the latest `found_s`."""

    network: str
    message_bytes: int
    # The final number of channels, one a repeat.
    channels: list
    # When the number changed for the last time.
    found_s: float
    rate_mbit_s: float
    share_of_link: float
    # None where no fixed number was measured.
    share_of_best: float | None
    best_line: str | None
    best_channels: int | None
    one_is_enough: bool
    cpu_was_limit: bool

    def ended_with(self):
        return " and ".join(map(str, sorted(set(self.channels))))


class Streams:
    def __init__(self, rows):
        self.rows = [row for row in rows if row["kind"] == "stream"]
        self.networks = list(dict.fromkeys(row["network"] for row in self.rows))

    def select(self, **wanted):
        return [row for row in self.rows if all(row[key] == value for key, value in wanted.items())]

    def one(self, **wanted):
        return next(iter(self.select(**wanted)), None)

    def rates(self, **wanted):
        """Median rate by number of channels, for fixed numbers."""
        return {
            row["channels"]: rate(row) for row in self.select(**wanted) if row["channels"] != AUTO
        }

    def best_fixed(self, network, message_bytes, without=()):
        """The row of the best fixed number of channels of any line, alone on the network.

        The connections of iperf3 count as well: its users have them without any striping.
        """
        fixed = [
            row
            for row in self.select(
                network=network, message_bytes=message_bytes, clients=1, beside=False
            )
            if row["channels"] != AUTO and row["line"] not in without
        ]
        return max(fixed, key=rate, default=None)

    def found(self, network, message_bytes):
        row = self.one(
            network=network, message_bytes=message_bytes, channels=AUTO, clients=1, beside=False
        )
        if row is None:
            return None
        best = self.best_fixed(network, message_bytes)
        own = self.best_fixed(network, message_bytes, without=("iperf3",))
        single = self.rates(
            network=network, message_bytes=message_bytes, line=row["line"], clients=1, beside=False
        ).get(1)
        return Found(
            network,
            message_bytes,
            [repeat["flows"][0]["interval_channels"][-1] for repeat in row["repeats"]],
            max(found_s(repeat["flows"][0]) for repeat in row["repeats"]),
            rate(row),
            rate(row) / LINK_MBIT_S,
            share(row, best) if best else None,
            best and best["line"],
            best and best["channels"],
            bool(own) and single is not None and single >= ENOUGH * rate(own),
            row["cpu_was_limit"],
        )

    def all_found(self):
        sizes = dict.fromkeys(
            (row["network"], row["message_bytes"])
            for row in self.select(channels=AUTO, clients=1, beside=False)
        )
        return [self.found(*where) for where in sizes]


def steady(flow, from_s, seconds):
    """The mean rate of whole intervals from a second on; the last interval is incomplete."""
    step = flow["interval_s"]
    rates = flow["interval_mbit_s"][:-1][round(from_s / step) : round(seconds / step)]
    return statistics.mean(rates) if rates else flow["rate_mbit_s"]


def flow_rates(row, repeat):
    """The rate of each client."""
    long = row["message_bytes"] >= LONG_BYTES and (row["channels"] != AUTO or row["clients"] > 1)
    if row["line"] == "iperf3" or long:
        return [flow["rate_mbit_s"] for flow in repeat["flows"]]
    return [steady(flow, row["from_s"], row["seconds"]) for flow in repeat["flows"]]


def repeat_rates(row):
    return [sum(flow_rates(row, repeat)) for repeat in row["repeats"]]


def rate(row):
    return statistics.median(repeat_rates(row))


def share(row, of):
    """The ratio of rates, repeat by repeat where both have as many."""
    ours, theirs = repeat_rates(row), repeat_rates(of)
    if len(ours) != len(theirs):
        return statistics.median(ours) / statistics.median(theirs)
    return statistics.median(mine / other for mine, other in zip(ours, theirs))


def found_s(flow):
    """The end of the interval in which the number of channels changed for the last time."""
    channels = flow["interval_channels"]
    changes = [
        index + 1 for index, (then, now) in enumerate(itertools.pairwise(channels)) if then != now
    ]
    return (changes[-1] + 1) * flow["interval_s"] if changes else 0.0


def fairness(rates):
    """Jain's index: 1 if all are equal, 1/n if one has everything."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


def resent_share(row):
    return sum(repeat["resent_segments"] for repeat in row["repeats"]) / max(
        sum(repeat["sent_segments"] for repeat in row["repeats"]), 1
    )


def dropped_share(row):
    """The share of packets that the rail dropped; None where it has no counters."""
    if any("dropped_packets" not in repeat for repeat in row["repeats"]):
        return None
    gone = sum(repeat["dropped_packets"] + repeat["lost_packets"] for repeat in row["repeats"])
    return gone / max(sum(repeat["arrived_packets"] for repeat in row["repeats"]), 1)
