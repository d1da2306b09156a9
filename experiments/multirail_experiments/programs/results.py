"""What rows of programs say, by network."""

import statistics
from typing import NamedTuple

from multirail_experiments.results import median_ratio


class Measured(NamedTuple):
    """A load with one line on one network, by round."""

    load: str
    line: str
    unit: str
    values: list
    cpu_was_limit: bool

    @property
    def middle(self):
        return statistics.median(self.values)


def by_network(rows):
    """What was measured on each network, by load and line, in the order of measuring."""
    found = {}
    for row in rows:
        if row["kind"] == "program":
            keys = "load", "line", "unit", "values", "cpu_was_limit"
            one = Measured(*(row[key] for key in keys))
            found.setdefault(row["network"], {})[one.load, one.line] = one
    return found


def ratio(ours, other):
    """The ratio of two values, round by round; None without one of them."""
    if ours is None or other is None:
        return None
    return median_ratio(ours.values, other.values)
