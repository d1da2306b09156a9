"""What rows of multicasts say: rates, shares of the bound, bytes that crossed between clusters; and what is demanded of them."""

import statistics

from results import DEFAULT, NOT_AVAILABLE, NOT_REACHED, REACHED, Claim, Point

# Frames of one copy to each other cluster, and six per cent.
WAN_SHARE = 1.06


class Broadcasts:
    """By network, scenario, size of message (None: the network's file) and line."""

    def __init__(self, rows):
        self.rows = [row for row in rows if row["kind"] == "broadcast"]
        self.skipped = [row for row in rows if row["kind"] == "skipped"]
        self.found = {self.place(row) + (row["line"],): row for row in self.rows}
        self.networks = self._all("network")
        self.scenarios = self._all("scenario")
        self.lines = self._all("line")
        self.sizes = sorted({row["message_bytes"] for row in self.rows if "message_bytes" in row})

    @staticmethod
    def place(row):
        return row["network"], row["scenario"], row.get("message_bytes")

    def _all(self, key):
        return list(dict.fromkeys(row[key] for row in self.rows))

    def row(self, network, scenario, line, size=None):
        return self.found.get((network, scenario, size, line))

    def median(self, network, scenario, line, size=None, field="mb_s"):
        row = self.row(network, scenario, line, size)
        return statistics.median(row[field]) if row and row.get(field) else None

    def bound_mb_s(self, network, scenario, size=None):
        """Of the whole file: lines with a share of it have the same."""
        return next((row["bound_mb_s"] for row in self.rows if self.place(row) == (network, scenario, size)), None)

    def share(self, network, scenario, line, size=None):
        """Of the bound."""
        rate, bound = self.median(network, scenario, line, size), self.bound_mb_s(network, scenario, size)
        return None if rate is None or not bound else rate / bound

    def ratio(self, network, scenario, line, against, size=None):
        """Of rates; repeat by repeat where both have as many."""
        ours, theirs = (self.row(network, scenario, name, size) for name in (line, against))
        if ours is None or theirs is None:
            return None
        if len(ours["mb_s"]) != len(theirs["mb_s"]):
            return statistics.median(ours["mb_s"]) / statistics.median(theirs["mb_s"])
        return statistics.median(mine / other for mine, other in zip(ours["mb_s"], theirs["mb_s"]))

    def lines_of(self, network, scenario=None):
        return [line for line in self.lines
                if any(row["line"] == line and row["network"] == network and scenario in (None, row["scenario"]) for row in self.rows)]

    def best(self, network, scenario, lines, size=None):
        """The fastest of some lines that was measured."""
        measured = [line for line in lines if self.row(network, scenario, line, size)]
        return max(measured, key=lambda line: self.median(network, scenario, line, size), default=None)

    def dagger(self, network, scenario, line, size=None):
        row = self.row(network, scenario, line, size)
        return " †" if row and row["cpu_was_limit"] else ""


def points(rows):
    """As Results.points: the default beside the best other line."""
    found = Broadcasts(rows)
    for network, scenario, size in dict.fromkeys(map(Broadcasts.place, found.rows)):
        ours = found.row(network, scenario, DEFAULT, size)
        if ours is None:
            continue
        best = found.best(network, scenario, found.lines, size)
        share = 1.0 if best == DEFAULT else found.ratio(network, scenario, DEFAULT, best, size)
        busy = ours["cpu_was_limit"] or found.row(network, scenario, best, size)["cpu_was_limit"]
        where = network if size is not None else f"{network}, {scenario}"
        yield Point(where, ours["file_bytes"], best, 8 * found.median(network, scenario, best, size),
                    8 * found.median(network, scenario, DEFAULT, size), share, busy)


def demanded(where, text, ours, *, least=None, most=None, digits=2, unit="", note=""):
    """A demand of our own: no paper's number, but one to be reached. As it is shown."""
    limit = least if least is not None else most
    paper = f"demanded: {'>=' if least is not None else '<='} {limit:.{digits}f} {unit}".strip()
    if ours is None:
        return Claim(where, text, paper, "-", NOT_AVAILABLE, note or "not measured")
    shown = round(ours, digits)
    reached = shown >= limit if least is not None else shown <= limit
    return Claim(where, text, paper, f"{shown:.{digits}f} {unit}".strip(), REACHED if reached else NOT_REACHED, note)


def share_claim(found, where, network, scenario, line, least):
    note = f"bound {found.bound_mb_s(network, scenario) or 0:.2f} MB/s{found.dagger(network, scenario, line)}"
    return demanded(f"{where}: {network}, {scenario}", f"{line}: share of the bound", found.share(network, scenario, line), least=least,
                    note=note)


def wan_claim(found, where, network, scenario, line, clusters=4):
    copies = found.median(network, scenario, line, field="wan_copies")
    return demanded(f"{where}: {network}, {scenario}", f"{line}: frames between clusters, in files", copies, most=WAN_SHARE * (clusters - 1))


def ratio_claim(found, where, network, scenario, line, against, least, size=None):
    """Of several lines, against the best of them."""
    names = [against] if isinstance(against, str) else against
    against = found.best(network, scenario, names, size)
    ours = None if against is None else found.ratio(network, scenario, line, against, size)
    dagger = "" if against is None else found.dagger(network, scenario, against, size) or found.dagger(network, scenario, line, size)
    return demanded(f"{where}: {network}, {scenario}", f"{line}: rate over that of {against or ' or '.join(names)}", ours, least=least,
                    note="the CPU was the limit †" if dagger else "")
