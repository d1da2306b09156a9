"""Rows of multicasts: rates, shares of the bound, bytes that crossed between clusters."""

import statistics

from multirail_experiments.results import DEFAULT, Point

# Frames of one copy to each other cluster, plus six per cent.
WAN_SHARE = 1.06
# The default between hosts that have links already.
WARM = "warm group"


class Broadcasts:
    """Rows by network, scenario, message size (None: the network's file) and line."""

    def __init__(self, rows):
        self.rows = [row for row in rows if row["kind"] == "broadcast"]
        self.skipped = [row for row in rows if row["kind"] == "skipped"]
        self.found = {(*self.place(row), row["line"]): row for row in self.rows}
        self.networks = self._all("network")
        self.scenarios = self._all("scenario")
        self.lines = self._all("line")
        self.sizes = sorted({row["message_bytes"] for row in self.rows if "message_bytes" in row})

    @staticmethod
    def place(row):
        return row["network"], row["scenario"], row.get("message_bytes")

    def _all(self, key):
        return list(dict.fromkeys(row[key] for row in self.rows))

    def sizes_of(self, network):
        """The message sizes that were measured on a network."""
        rows = (row for row in self.rows if row["network"] == network)
        return sorted({row["message_bytes"] for row in rows if "message_bytes" in row})

    def row(self, network, scenario, line, size=None):
        return self.found.get((network, scenario, size, line))

    def median(self, network, scenario, line, size=None, field="mb_s"):
        row = self.row(network, scenario, line, size)
        return statistics.median(row[field]) if row and row.get(field) else None

    def bound_mb_s(self, network, scenario, size=None):
        """The bound of the whole file, also for lines that sent a part of it."""
        return next(
            (
                row["bound_mb_s"]
                for row in self.rows
                if self.place(row) == (network, scenario, size)
            ),
            None,
        )

    def share(self, network, scenario, line, size=None):
        """A line's share of the bound."""
        rate, bound = (
            self.median(network, scenario, line, size),
            self.bound_mb_s(network, scenario, size),
        )
        return None if rate is None or not bound else rate / bound

    def ratio(self, network, scenario, line, against, size=None):
        """The ratio of rates, repeat by repeat where both have as many."""
        ours, theirs = (self.row(network, scenario, name, size) for name in (line, against))
        if ours is None or theirs is None:
            return None
        if len(ours["mb_s"]) != len(theirs["mb_s"]):
            return statistics.median(ours["mb_s"]) / statistics.median(theirs["mb_s"])
        return statistics.median(mine / other for mine, other in zip(ours["mb_s"], theirs["mb_s"]))

    def lines_of(self, network, scenario=None):
        return [
            line
            for line in self.lines
            if any(
                row["line"] == line
                and row["network"] == network
                and scenario in (None, row["scenario"])
                for row in self.rows
            )
        ]

    def comparable(self, ours):
        """Lines that sent a file as large as a row's, in the same place.

        The warm group is left out: it is the default itself, with links that exist.
        """
        return [
            row["line"]
            for row in self.rows
            if self.place(row) == self.place(ours)
            and row["file_bytes"] == ours["file_bytes"]
            and row["line"] != WARM
        ]

    def best(self, network, scenario, lines, size=None):
        """The fastest of some lines, of those that were measured."""
        measured = [line for line in lines if self.row(network, scenario, line, size)]
        return max(
            measured, key=lambda line: self.median(network, scenario, line, size), default=None
        )

    def runs(self, network, scenario, line, size=None):
        """How often a line was measured; None if it was not."""
        row = self.row(network, scenario, line, size)
        return len(row["mb_s"]) if row else None

    def dagger(self, network, scenario, line, size=None):
        row = self.row(network, scenario, line, size)
        return " †" if row and row["cpu_was_limit"] else ""


def points(rows):
    """The default beside the best other line (see points.points)."""
    found = Broadcasts(rows)
    for network, scenario, size in dict.fromkeys(map(Broadcasts.place, found.rows)):
        ours = found.row(network, scenario, DEFAULT, size)
        if ours is None:
            continue
        best = found.best(network, scenario, found.comparable(ours), size)
        share = 1.0 if best == DEFAULT else found.ratio(network, scenario, DEFAULT, best, size)
        busy = ours["cpu_was_limit"] or found.row(network, scenario, best, size)["cpu_was_limit"]
        where = network if size is not None else f"{network}, {scenario}"
        yield Point(
            where,
            ours["file_bytes"],
            best,
            8 * found.median(network, scenario, best, size),
            8 * found.median(network, scenario, DEFAULT, size),
            share,
            busy,
        )
