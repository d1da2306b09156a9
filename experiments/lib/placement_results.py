"""What rows of hosts with several ports say: shares of all ports' rate, how evenly ports are used, what is sent twice; and what is
demanded of them."""

import statistics

from multicast_results import demanded
from results import DEFAULT, NOT_AVAILABLE, NOT_REACHED, REACHED, TOLERANCE, Claim, Point, Results, best_everywhere, compare

# What is demanded of the default: of all ports' rate, of the most over the mean port, of segments sent twice for nothing, and of the
# slowest stream over the mean.
SHARE, BALANCE, DUPLICATES, SLOWEST = 0.93, 1.1, 0.002, 0.5
# The paper's method, and the three that it is held against.
PAPER, PAPER_OTHERS = "backlog", ("layer2", "round-robin", "single")
# What is behind the names of lines whose TCP is that of the paper's years.
OLD = ", old TCP"


class Placements:
    """By network, pattern, number of streams, and line."""

    def __init__(self, rows):
        self.rows = [row for row in rows if row["kind"] == "placement"]
        self.skipped = [row for row in rows if row["kind"] == "skipped"]
        self.found = {self.place(row) + (row["line"],): row for row in self.rows}
        self.networks, self.patterns, self.lines = (list(dict.fromkeys(row[key] for row in self.rows)) for key in ("network", "pattern", "line"))

    @staticmethod
    def place(row):
        return row["network"], row["pattern"], row["streams"]

    def places(self, network=None, pattern=None):
        """In the order of measuring."""
        every = dict.fromkeys(map(self.place, self.rows))
        return [place for place in every if network in (None, place[0]) and pattern in (None, place[1])]

    def streams(self, network, pattern):
        return sorted(place[2] for place in self.places(network, pattern))

    def lines_of(self, network, pattern=None):
        return [line for line in self.lines if any((*place, line) in self.found for place in self.places(network, pattern))]

    def row(self, place, line):
        return self.found.get((*place, line))

    def values(self, place, line, field):
        row = self.row(place, line)
        return [value for value in row.get(field, []) if value is not None] if row else []

    def median(self, place, line, field="rate_mbit_s"):
        values = self.values(place, line, field)
        return statistics.median(values) if values else None

    def ratio(self, place, line, against, field="rate_mbit_s"):
        """Repeat by repeat, where both have as many."""
        ours, theirs = (self.values(place, name, field) for name in (line, against))
        if not ours or not theirs or 0 in theirs:
            return None
        if len(ours) != len(theirs):
            return statistics.median(ours) / statistics.median(theirs)
        return statistics.median(mine / other for mine, other in zip(ours, theirs))

    def best(self, place, lines=None, field="rate_mbit_s"):
        measured = [line for line in lines or self.lines if self.median(place, line, field) is not None]
        return max(measured, key=lambda line: self.median(place, line, field), default=None)

    def dagger(self, place, line):
        row = self.row(place, line)
        return " †" if row and row["cpu_was_limit"] else ""


def points(rows):
    """As Results.points: the default beside the best other line."""
    found = Placements(rows)
    for place in found.places():
        ours = found.median(place, DEFAULT)
        if ours is None:
            continue
        best = found.best(place, [line for line in found.lines if not line.endswith(OLD)])
        share = 1.0 if best == DEFAULT else found.ratio(place, DEFAULT, best)
        busy = any(found.row(place, line)["cpu_was_limit"] for line in (DEFAULT, best))
        network, pattern, streams = place
        yield Point(f"{network}, {pattern}", streams, best, found.median(place, best), ours, share, busy, f"{streams} streams a pair")


def paper_claims(found, where, network, pattern):
    """The paper's order: its method before the three others, at every number of processes."""
    orders = [(PAPER, other) for other in PAPER_OTHERS]
    orders += [(f"{line}{OLD}", f"{other}{OLD}") for line, other in orders if f"{other}{OLD}" in found.lines]
    for line, other in orders:
        ratios = {place: found.ratio(place, line, other) for place in found.places(network, pattern)}
        ratios = {place: ratio for place, ratio in ratios.items() if ratio is not None}
        text = f"{pattern}: {line} (PMCME) at least as fast as {other}"
        if not ratios:
            yield Claim(f"{where}: {network}", text, "at every number of processes", "-", NOT_AVAILABLE, "not measured")
            continue
        slower = {place: ratio for place, ratio in ratios.items() if ratio < 1 - TOLERANCE}
        note = ", ".join(f"{place[2]} streams: {ratio:.2f} times{found.dagger(place, line)}" for place, ratio in ratios.items())
        yield Claim(f"{where}: {network}", text, "at every number of processes", f"at {len(ratios) - len(slower)} of {len(ratios)}",
                    NOT_REACHED if slower else REACHED, note)


def default_claims(found, where, network, pattern):
    """What is demanded of the default, at the number of streams where it is worst."""
    def worst(field, choose):
        values = {place: found.median(place, DEFAULT, field) for place in found.places(network, pattern)}
        values = {place: value for place, value in values.items() if value is not None}
        if not values:
            return None, ""
        place = choose(values, key=values.get)
        return values[place], f"worst with {place[2]} streams a pair{found.dagger(place, DEFAULT)}"

    here = f"{where}: {network}"
    for text, field, choose, limit, scale, unit in (
            ("share of all ports' rate", "share", min, {"least": SHARE}, 1, ""),
            ("bytes of the busiest port over the mean, sent", "sent_balance", max, {"most": BALANCE}, 1, ""),
            ("bytes of the busiest port over the mean, received", "received_balance", max, {"most": BALANCE}, 1, ""),
            ("segments sent twice for nothing", "duplicate_share", max, {"most": 100 * DUPLICATES}, 100, "%"),
            ("slowest stream over the mean", "slowest_share", min, {"least": SLOWEST}, 1, "")):
        ours, note = worst(field, choose)
        yield demanded(here, f"{pattern}, {DEFAULT}: {text}", None if ours is None else scale * ours, unit=unit, note=note, **limit)


def pattern_claims(rows, where):
    """Of a folder of patterns: everything above."""
    found = Placements(rows)
    for network in found.networks:
        for pattern in found.patterns:
            if found.places(network, pattern):
                yield from paper_claims(found, where, network, pattern)
                yield from default_claims(found, where, network, pattern)
    yield best_everywhere(where, Results(rows))


def even_claims(rows, where, line, way, is_even):
    """The paper's bars of ports, with the most streams: about the same height, or not."""
    found = Placements(rows)
    for network in found.networks:
        place = found.places(network)[-1]
        balance = found.median(place, line, f"{way}_balance")
        text = f"{line}: ports {'are' if is_even else 'are not'} used evenly, {way} (busiest port over the mean)"
        if balance is None:
            yield Claim(where, text, "by figure", "-", NOT_AVAILABLE, "not measured")
            continue
        yield Claim(where, text, "by figure", f"{balance:.2f}", REACHED if (round(balance, 2) <= EVEN) == is_even else NOT_REACHED,
                    f"even: up to {EVEN}; {place[2]} streams a pair")


# As even as the bars of the paper's figure 16.
EVEN = 1.1
# The most of SACK packets that PMCME caused in the paper, of all packets.
PAPER_SACK_PERCENT = 0.15


def disorder_claims(rows, where, pattern):
    found = Placements(rows)
    for network in found.networks:
        place = found.places(network, pattern)[-1]
        shares = {line: found.median(place, line, "out_of_order_share") for line in (PAPER, "round-robin", DEFAULT)}
        note = f"{place[2]} streams a pair; the paper counts packets that tell of disorder, we those that came out of order"
        yield demanded_as(where, f"{PAPER}: packets out of order", PAPER_SACK_PERCENT, shares[PAPER], note)
        if None in (shares[PAPER], shares["round-robin"]):
            continue
        more = shares["round-robin"] > shares[PAPER]
        yield Claim(where, f"more packets out of order with round-robin than with {PAPER}", "by figure",
                    f"{100 * shares['round-robin']:.2f} % and {100 * shares[PAPER]:.2f} %", REACHED if more else NOT_REACHED)


def demanded_as(where, text, paper_percent, share, note):
    """At most what the paper has."""
    return compare(where, text, paper_percent, None if share is None else 100 * share, unit="%", less=True, note=note)
