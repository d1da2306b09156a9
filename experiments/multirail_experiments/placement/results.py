"""Rows of hosts with several ports: rates, evenness of ports, and repeated segments."""

import statistics

from multirail_experiments.results import DEFAULT, Point

# The end of the names of lines whose TCP is that of the paper's years.
OLD = ", old TCP"


class Placements:
    """Rows by network, pattern, number of streams, and line."""

    def __init__(self, rows):
        self.rows = [row for row in rows if row["kind"] == "placement"]
        self.skipped = [row for row in rows if row["kind"] == "skipped"]
        self.found = {(*self.place(row), row["line"]): row for row in self.rows}
        self.networks, self.patterns, self.lines = (
            list(dict.fromkeys(row[key] for row in self.rows))
            for key in ("network", "pattern", "line")
        )

    @staticmethod
    def place(row):
        return row["network"], row["pattern"], row["streams"]

    def places(self, network=None, pattern=None):
        """Places in the order of measuring."""
        every = dict.fromkeys(map(self.place, self.rows))
        return [
            place for place in every if network in (None, place[0]) and pattern in (None, place[1])
        ]

    def streams(self, network, pattern):
        return sorted(place[2] for place in self.places(network, pattern))

    def lines_of(self, network, pattern=None):
        return [
            line
            for line in self.lines
            if any((*place, line) in self.found for place in self.places(network, pattern))
        ]

    def row(self, place, line):
        return self.found.get((*place, line))

    def values(self, place, line, field):
        row = self.row(place, line)
        return [value for value in row.get(field, []) if value is not None] if row else []

    def median(self, place, line, field="rate_mbit_s"):
        values = self.values(place, line, field)
        return statistics.median(values) if values else None

    def ratio(self, place, line, against, field="rate_mbit_s"):
        """The ratio of two lines, repeat by repeat where both have as many."""
        ours, theirs = (self.values(place, name, field) for name in (line, against))
        if not ours or not theirs or 0 in theirs:
            return None
        if len(ours) != len(theirs):
            return statistics.median(ours) / statistics.median(theirs)
        return statistics.median(mine / other for mine, other in zip(ours, theirs))

    def best(self, place, lines=None, field="rate_mbit_s"):
        measured = [
            line for line in lines or self.lines if self.median(place, line, field) is not None
        ]
        return max(measured, key=lambda line: self.median(place, line, field), default=None)

    def dagger(self, place, line):
        row = self.row(place, line)
        return " †" if row and row["cpu_was_limit"] else ""


def points(rows):
    """The default beside the best other line (see points.points)."""
    found = Placements(rows)
    for place in found.places():
        ours = found.median(place, DEFAULT)
        if ours is None:
            continue
        best = found.best(place, [line for line in found.lines if not line.endswith(OLD)])
        share = 1.0 if best == DEFAULT else found.ratio(place, DEFAULT, best)
        busy = any(found.row(place, line)["cpu_was_limit"] for line in (DEFAULT, best))
        network, pattern, streams = place
        yield Point(
            f"{network}, {pattern}",
            streams,
            best,
            found.median(place, best),
            ours,
            share,
            busy,
            f"{streams} streams a pair",
        )
