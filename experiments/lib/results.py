"""Rows of a run, and what they say of a paper's claims."""

import json
import pathlib
import statistics
from typing import NamedTuple

DEFAULT = "adaptive"
# It is told the rates beforehand: a mark to aim at, not a competitor.
NOT_REAL = ("oracle",)
# The default may be so much slower than the best line.
TOLERANCE = 0.03

REACHED, NOT_REACHED, NOT_AVAILABLE = "reached", "not reached", "n.a."


class Claim(NamedTuple):
    """What a paper says, and what we measured; values as text."""

    where: str
    text: str
    paper_value: str
    our_value: str
    verdict: str
    note: str = ""


def number(value, digits=2, unit=""):
    text = "-" if value is None else f"{value:.{digits}f}"
    return f"{text} {unit}".strip()


def compare(where, text, paper, ours, *, unit="", digits=2, less=False, note=""):
    """A claim of a number: reached if ours is at least the paper's; with `less`, at most. As it is shown: 1.979 reaches 1.98."""
    if ours is None:
        return Claim(where, text, number(paper, digits, unit), "-", NOT_AVAILABLE, "not measured")
    shown = round(ours, digits)
    reached = shown <= round(paper, digits) if less else shown >= round(paper, digits)
    return Claim(where, text, number(paper, digits, unit), number(ours, digits, unit), REACHED if reached else NOT_REACHED, note)


class Point(NamedTuple):
    """The default beside the best real line, at one size on one network."""

    network: str
    message_bytes: int
    best: str
    best_mbit_s: float
    default_mbit_s: float
    share: float
    cpu_was_limit: bool
    # In place of the size, where that is none of a message.
    what: str = ""

    @property
    def is_lost(self):
        return self.share < 1 - TOLERANCE


class Results:
    """Rows by network, line and size."""

    def __init__(self, rows):
        self.rows = rows
        self.host = next((row for row in rows if row["kind"] == "host"), {})
        self.plan = next((row for row in rows if row["kind"] == "plan"), {})
        self.messages = {(row["network"], row["line"], row["message_bytes"]): row for row in rows if row["kind"] == "message"}
        self.networks = list(dict.fromkeys(network for network, _, _ in self.messages))

    def lines(self, network=None):
        return list(dict.fromkeys(line for n, line, _ in self.messages if n == (network or self.networks[0])))

    def sizes(self, network=None):
        return sorted({size for n, _, size in self.messages if n == (network or self.networks[0])})

    def values(self, line, message_bytes, field="effective_mbit_s", network=None):
        """One a repeat; none if this was not measured."""
        row = self.messages.get((network or (self.networks or [None])[0], line, message_bytes))
        found = row.get(field, []) if row else []
        return found if isinstance(found, list) else [found]

    def median(self, line, message_bytes, field="effective_mbit_s", network=None):
        values = self.values(line, message_bytes, field, network)
        return statistics.median(values) if values else None

    def mean(self, line, message_bytes, field, network=None):
        values = self.values(line, message_bytes, field, network)
        return statistics.mean(values) if values else None

    def ratio(self, line, against, message_bytes, network=None):
        """Of effective bandwidths, taken repeat by repeat where both have as many."""
        ours, theirs = (self.values(name, message_bytes, network=network) for name in (line, against))
        if not ours or not theirs:
            return None
        if len(ours) != len(theirs):
            return statistics.median(ours) / statistics.median(theirs)
        return statistics.median(mine / other for mine, other in zip(ours, theirs))

    def least_size(self, line, against, ratio, network=None):
        """The least size from which on, at all sizes, `line` has at least `ratio` of `against`."""
        least = None
        for size in reversed(self.sizes(network)):
            measured = self.ratio(line, against, size, network)
            if measured is None or measured < ratio:
                break
            least = size
        return least

    def points(self, default=DEFAULT, not_real=NOT_REAL):
        """The default beside the best line, wherever it was measured."""
        import multicast_results  # these build on this module
        import placement_results

        yield from multicast_results.points(self.rows)
        yield from placement_results.points(self.rows)
        for network in self.networks:
            for size in self.sizes(network):
                ours = self.median(default, size, network=network)
                if ours is None:
                    continue
                # A stream one way is no message there and back.
                rates = {line: self.median(line, size, network=network) for line in self.lines(network)
                         if line not in not_real and "stream_s" not in self.messages.get((network, line, size), {})}
                best = max((line for line in rates if rates[line] is not None), key=lambda line: rates[line])
                share = 1.0 if best == default else self.ratio(default, best, size, network)
                busy = any(self.messages[network, line, size].get("cpu_was_limit", False)
                           for line in (default, best))
                yield Point(network, size, best, rates[best], ours, share, busy)


def best_everywhere(where, results):
    """The claim that the default is the best line, or near it, at every point of a plot."""
    points = list(results.points())
    if not points:
        return Claim(where, DEFAULT_IS_BEST, "", "-", NOT_AVAILABLE, "not measured")
    lost = [point for point in points if point.is_lost]
    note = f"least share of the best line: {min(point.share for point in points):.2f}"
    return Claim(where, DEFAULT_IS_BEST, "", f"{len(points) - len(lost)} of {len(points)} points",
                 NOT_REACHED if lost else REACHED, note)


DEFAULT_IS_BEST = f"the default is the best line or within {TOLERANCE:.0%} of it at every point"


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def newest(folder):
    """The newest run of an experiment: its folder, or None."""
    runs = sorted(path.parent for path in pathlib.Path(folder).glob("runs/*/raw.jsonl"))
    return runs[-1] if runs else None
