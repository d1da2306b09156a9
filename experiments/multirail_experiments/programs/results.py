"""What rows of programs say, by network and load."""

import statistics
from typing import NamedTuple


class Measured(NamedTuple):
    """A load with one line on one network, by round."""

    load: str
    line: str
    mbit_s: list
    cpu_was_limit: bool

    @property
    def rate(self):
        return statistics.median(self.mbit_s)


def by_network(rows):
    """What was measured on each network, by load and line, in the order of measuring."""
    found = {}
    for row in rows:
        if row["kind"] == "program":
            one = Measured(row["load"], row["line"], row["mbit_s"], row["cpu_was_limit"])
            found.setdefault(row["network"], {})[one.load, one.line] = one
    return found


def ratio(ours, other):
    """The ratio of two rates, round by round; None without one of them."""
    if ours is None or other is None:
        return None
    return statistics.median(mine / its for mine, its in zip(ours.mbit_s, other.mbit_s))
