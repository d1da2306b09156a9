"""What rows of streams and copies say, by network."""

import statistics
from typing import NamedTuple

from multirail_experiments.peers import cp, cp_background
from multirail_experiments.results import median_ratio

PLAIN, BACKGROUND = cp.NAME, cp_background.NAME
KINDS = ("stream", "copy")


class Measured(NamedTuple):
    """A stream or a copy on one network, by round."""

    kind: str
    # The copy; beside the stream, or alone. Empty: the stream alone.
    line: str
    mbit_s: list
    rtt_ms: list
    cpu_was_limit: bool

    @property
    def name(self):
        if self.kind == "copy":
            return f"{self.line} alone"
        return f"stream beside {self.line}" if self.line else "stream alone"

    @property
    def rate(self):
        return statistics.median(self.mbit_s)

    @property
    def rtt(self):
        """The median of mean round trips; None for copies."""
        return statistics.median(self.rtt_ms) if self.rtt_ms else None


def by_network(rows):
    """What was measured on each network, by kind and line, in the order of measuring."""
    found = {}
    for row in rows:
        if row["kind"] in KINDS:
            one = Measured(
                row["kind"], row["line"], row["mbit_s"], row.get("rtt_ms", []), row["cpu_was_limit"]
            )
            found.setdefault(row["network"], {})[one.kind, one.line] = one
    return found


def share(ours, other):
    """The ratio of two rates, round by round."""
    if ours is None or other is None:
        return None
    return median_ratio(ours.mbit_s, other.mbit_s)
