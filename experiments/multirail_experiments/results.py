"""Rows of a run: what was measured, by network, line and message size."""

import json
import pathlib
import statistics
from typing import NamedTuple

DEFAULT = "adaptive"
# `oracle` is told the rates beforehand, so it does not compete.
NOT_REAL = ("oracle",)
# The default may be slower than the best line by this share.
TOLERANCE = 0.03


def median_ratio(ours, theirs):
    """The median of the ratios of two lists of values, round by round."""
    return statistics.median(mine / its for mine, its in zip(ours, theirs))


class Point(NamedTuple):
    """The default beside the best real line, at one size on one network."""

    network: str
    message_bytes: int
    best: str
    best_mbit_s: float
    default_mbit_s: float
    share: float
    cpu_was_limit: bool
    # Shown instead of the size, where the point is not a message.
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
        self.messages = {
            (row["network"], row["line"], row["message_bytes"]): row
            for row in rows
            if row["kind"] == "message"
        }
        self.networks = list(dict.fromkeys(network for network, _, _ in self.messages))

    def lines(self, network=None):
        return list(
            dict.fromkeys(
                line for n, line, _ in self.messages if n == (network or self.networks[0])
            )
        )

    def sizes(self, network=None):
        return sorted({size for n, _, size in self.messages if n == (network or self.networks[0])})

    def values(self, line, message_bytes, field="effective_mbit_s", network=None):
        """Values of a field, one a repeat; empty if it was not measured."""
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
        """The ratio of effective bandwidths, repeat by repeat where both have as many."""
        ours, theirs = (
            self.values(name, message_bytes, network=network) for name in (line, against)
        )
        if not ours or not theirs:
            return None
        if len(ours) != len(theirs):
            return statistics.median(ours) / statistics.median(theirs)
        return statistics.median(mine / other for mine, other in zip(ours, theirs))

    def least_size(self, line, against, ratio, network=None):
        """The least size from which on `line` has at least `ratio` of `against` at all sizes."""
        least = None
        for size in reversed(self.sizes(network)):
            measured = self.ratio(line, against, size, network)
            if measured is None or measured < ratio:
                break
            least = size
        return least


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def newest(folder):
    """The folder of an experiment's newest run, or None."""
    runs = sorted(path.parent for path in pathlib.Path(folder).glob("runs/*/raw.jsonl"))
    return runs[-1] if runs else None


def fewest_runs(rows):
    """How often the least measured value of a run was measured; None without values."""
    counts = []
    for row in rows:
        if row["kind"] in ("host", "plan", "skipped", "slide", "alone") or "reason" in row:
            continue
        lists = [len(value) for value in row.values() if isinstance(value, list)]
        counts.append(max(lists, default=1))
    return min(counts, default=None)
