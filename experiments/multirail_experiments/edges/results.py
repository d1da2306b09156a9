"""Rows of `measures = "edges"`."""

import statistics

from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED, Claim, number
from multirail_experiments.drawing import Figure


class Edges:
    """Points by line and size."""

    def __init__(self, rows):
        self.points = {
            (row["line"], row["message_bytes"]): row for row in rows if row["kind"] == "edge"
        }
        self.lines = list(dict.fromkeys(line for line, _ in self.points))
        self.sizes = sorted({size for _, size in self.points})

    def median(self, line, size, field):
        values = self.points.get((line, size), {}).get(field)
        return statistics.median(values) if values else None

    def ratio(self, line, against, size, field):
        """The ratio of `line` to `against`, repeat by repeat."""
        ours, theirs = (self.points.get((name, size), {}).get(field) for name in (line, against))
        if not ours or not theirs:
            return None
        return statistics.median(mine / other for mine, other in zip(ours, theirs))

    def draw(self, title, label, field, path):
        figure = Figure(title, label, self.lines)
        for line in self.lines:
            values = {
                size: self.points[line, size][field]
                for size in self.sizes
                if self.points.get((line, size), {}).get(field)
            }
            figure.line(
                line,
                {size: statistics.median(found) for size, found in values.items()},
                {size: (min(found), max(found)) for size, found in values.items()},
            )
        figure.axes.set_yscale("log")
        figure.save(path, bottom=None)


def demand(where, text, limit, ours, *, less=False, note=""):
    """A demand of ours on a ratio: at least the limit; with `less`, at most."""
    wanted = f"{'at most' if less else 'at least'} {limit:g}"
    if ours is None:
        return Claim(where, text, wanted, "-", NO_VERDICT, "not measured")
    reached = ours <= limit if less else ours >= limit
    return Claim(where, text, wanted, number(ours), REACHED if reached else NOT_REACHED, note)
