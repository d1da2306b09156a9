"""What rows of the kind `stream` say: rates once they are steady, and what the found number of channels is worth."""

import itertools
import statistics
from typing import NamedTuple

from results import NOT_REACHED, REACHED, Claim
from stream import AUTO

# Of payload, on 100 Mbit/s of Ethernet.
LINK_MBIT_S = 95.6
# What is demanded of the found number: of the best fixed one's rate, of the link, and when it is to be found.
SHARE_OF_BEST, SHARE_OF_LINK, FOUND_S = 0.95, 0.90, 3.0
# One channel is enough if no other number is better by more than this.
ENOUGH = 0.95
# Intervals hold too few longer messages: rates are then those of the whole stream.
LONG_BYTES = 1 << 20


class Found(NamedTuple):
    """What `auto` did; of several repeats the median, of `found_s` the latest."""

    network: str
    message_bytes: int
    # At the end, one a repeat.
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
        """Median rate by number of channels, of the fixed ones."""
        return {row["channels"]: rate(row) for row in self.select(**wanted) if row["channels"] != AUTO}

    def best_fixed(self, network, message_bytes):
        """The row of the best fixed number of any of our strategies, alone on the network."""
        fixed = [row for row in self.select(network=network, message_bytes=message_bytes, clients=1, beside=False)
                 if row["channels"] != AUTO and row["line"] != "iperf3"]
        return max(fixed, key=rate, default=None)

    def found(self, network, message_bytes):
        row = self.one(network=network, message_bytes=message_bytes, channels=AUTO, clients=1, beside=False)
        if row is None:
            return None
        best = self.best_fixed(network, message_bytes)
        single = self.rates(network=network, message_bytes=message_bytes, line=row["line"], clients=1, beside=False).get(1)
        return Found(
            network, message_bytes, [repeat["flows"][0]["interval_channels"][-1] for repeat in row["repeats"]],
            max(found_s(repeat["flows"][0]) for repeat in row["repeats"]), rate(row), rate(row) / LINK_MBIT_S,
            share(row, best) if best else None, best and best["line"], best and best["channels"],
            bool(best) and single is not None and single >= ENOUGH * rate(best), row["cpu_was_limit"])

    def all_found(self):
        sizes = dict.fromkeys((row["network"], row["message_bytes"]) for row in self.select(channels=AUTO, clients=1, beside=False))
        return [self.found(*where) for where in sizes]


def steady(flow, from_s, seconds):
    """Its rate in the whole intervals from a time on. The last one is what was left when the stream ended."""
    step = flow["interval_s"]
    rates = flow["interval_mbit_s"][:-1][round(from_s / step):round(seconds / step)]
    return statistics.mean(rates) if rates else flow["rate_mbit_s"]


def flow_rates(row, repeat):
    """Each client's."""
    long = row["message_bytes"] >= LONG_BYTES and (row["channels"] != AUTO or row["clients"] > 1)
    if row["line"] == "iperf3" or long:
        return [flow["rate_mbit_s"] for flow in repeat["flows"]]
    return [steady(flow, row["from_s"], row["seconds"]) for flow in repeat["flows"]]


def repeat_rates(row):
    return [sum(flow_rates(row, repeat)) for repeat in row["repeats"]]


def rate(row):
    return statistics.median(repeat_rates(row))


def share(row, of):
    """Repeat by repeat, where both have as many."""
    ours, theirs = repeat_rates(row), repeat_rates(of)
    if len(ours) != len(theirs):
        return statistics.median(ours) / statistics.median(theirs)
    return statistics.median(mine / other for mine, other in zip(ours, theirs))


def found_s(flow):
    """The end of the interval in which the number of channels changed for the last time."""
    channels = flow["interval_channels"]
    changes = [index + 1 for index, (then, now) in enumerate(itertools.pairwise(channels)) if then != now]
    return (changes[-1] + 1) * flow["interval_s"] if changes else 0.0


def fairness(rates):
    """Jain's index: 1 if all are equal, 1/n if one has all."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


def resent_share(row):
    return sum(repeat["resent_segments"] for repeat in row["repeats"]) / max(sum(repeat["sent_segments"] for repeat in row["repeats"]), 1)


def dropped_share(row):
    """Of the packets that came to the rail; None where it has no counters."""
    if any("dropped_packets" not in repeat for repeat in row["repeats"]):
        return None
    gone = sum(repeat["dropped_packets"] + repeat["lost_packets"] for repeat in row["repeats"])
    return gone / max(sum(repeat["arrived_packets"] for repeat in row["repeats"]), 1)


def auto_claims(where, found, what, link=True):
    """What the project demands of the found number, at one point. `link`: whether nine tenths of the link are demanded too."""
    dagger = "; the CPU was the limit" if found.cpu_was_limit else ""
    if found.share_of_best is not None:
        note = f"best fixed: {found.best_channels} channels, {found.best_line}; the default ended with {found.ended_with()}{dagger}"
        yield verdict(where, f"{what}: the default's share of the best fixed number", f">= {SHARE_OF_BEST:.2f}", f"{found.share_of_best:.2f}",
                      round(found.share_of_best, 2) >= SHARE_OF_BEST, note)
    yield verdict(where, f"{what}: the default changes its number for the last time", f"<= {FOUND_S:.2f} s", f"{found.found_s:.2f} s",
                  found.found_s <= FOUND_S, f"ended with {found.ended_with()}")
    if link:
        yield verdict(where, f"{what}: the default's share of the link", f">= {SHARE_OF_LINK:.2f}", f"{found.share_of_link:.2f}",
                      round(found.share_of_link, 2) >= SHARE_OF_LINK, f"{found.rate_mbit_s:.1f} of {LINK_MBIT_S} Mbit/s")
    if found.one_is_enough:
        yield verdict(where, f"{what}: one channel is enough, and the default ends with one", "1", found.ended_with(),
                      set(found.channels) == {1}, "")


def verdict(where, text, demanded, ours, reached, note):
    """A demand of our own: no paper's number, but one to be reached."""
    return Claim(where, text, f"demanded: {demanded}", ours, REACHED if reached else NOT_REACHED, note)
