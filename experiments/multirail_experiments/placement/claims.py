"""Claims that several folders of hosts with several ports share."""

from multirail_experiments.claims import Claim, compare, demanded, judged, not_measured
from multirail_experiments.placement.results import OLD, Placements
from multirail_experiments.points import best_everywhere
from multirail_experiments.results import DEFAULT, TOLERANCE

# Limits of the default: its share of all ports' rate, the busiest port over the mean, segments sent
# twice needlessly, and the slowest stream over the mean.
SHARE, BALANCE, DUPLICATES, SLOWEST = 0.93, 1.1, 0.002, 0.5
# The paper's method, and the three methods that it is compared with.
PAPER, PAPER_OTHERS = "backlog", ("layer2", "round-robin", "single")
# Ports are even up to this ratio, as the bars of the paper's figure 16 are.
EVEN = 1.1
# The largest share of SACK packets that PMCME causes in the paper.
PAPER_SACK_PERCENT = 0.15


def paper_claims(found, where, network, pattern):
    """The paper's order: its method before the three others, at every number of processes."""
    orders = [(PAPER, other) for other in PAPER_OTHERS]
    orders += [
        (f"{line}{OLD}", f"{other}{OLD}")
        for line, other in orders
        if f"{other}{OLD}" in found.lines
    ]
    for line, other in orders:
        ratios = {
            place: found.ratio(place, line, other) for place in found.places(network, pattern)
        }
        ratios = {place: ratio for place, ratio in ratios.items() if ratio is not None}
        text = f"{pattern}: {line} (PMCME) at least as fast as {other}"
        if not ratios:
            yield not_measured(f"{where}: {network}", text, "at every number of processes")
            continue
        slower = {place: ratio for place, ratio in ratios.items() if ratio < 1 - TOLERANCE}
        note = ", ".join(
            f"{place[2]} streams: {ratio:.2f} times{found.dagger(place, line)}"
            for place, ratio in ratios.items()
        )
        expected = "at every number of processes"
        if len(ratios) == 1:
            note += "; the paper says it of every number of processes, and one was measured"
            expected = "at this number of processes"
        yield Claim(
            f"{where}: {network}",
            text,
            expected,
            f"at {len(ratios) - len(slower)} of {len(ratios)}",
            judged(not slower),
            note,
        )


def default_claims(found, where, network, pattern):
    """Limits of the default, at the number of streams where it is worst."""

    def worst(field, choose):
        values = {
            place: found.median(place, DEFAULT, field) for place in found.places(network, pattern)
        }
        values = {place: value for place, value in values.items() if value is not None}
        if not values:
            return None, ""
        place = choose(values, key=values.get)
        return values[place], f"worst with {place[2]} streams a pair{found.dagger(place, DEFAULT)}"

    here = f"{where}: {network}"
    for text, field, choose, limit, scale, unit in (
        ("share of all ports' rate", "share", min, {"least": SHARE}, 1, ""),
        (
            "bytes of the busiest port over the mean, sent",
            "sent_balance",
            max,
            {"most": BALANCE},
            1,
            "",
        ),
        (
            "bytes of the busiest port over the mean, received",
            "received_balance",
            max,
            {"most": BALANCE},
            1,
            "",
        ),
        (
            "segments sent twice for nothing",
            "duplicate_share",
            max,
            {"most": 100 * DUPLICATES},
            100,
            "%",
        ),
        ("slowest stream over the mean", "slowest_share", min, {"least": SLOWEST}, 1, ""),
    ):
        ours, note = worst(field, choose)
        yield demanded(
            here,
            f"{pattern}, {DEFAULT}: {text}",
            None if ours is None else scale * ours,
            unit=unit,
            note=note,
            **limit,
        )


def pattern_claims(rows, where):
    """All claims of a folder of patterns."""
    found = Placements(rows)
    for network in found.networks:
        for pattern in found.patterns:
            if found.places(network, pattern):
                yield from paper_claims(found, where, network, pattern)
                yield from default_claims(found, where, network, pattern)
    yield best_everywhere(where, rows)


def even_claims(rows, where, line, way, is_even):
    """The paper's bars of ports with the most streams: even, or not."""
    found = Placements(rows)
    for network in found.networks:
        place = found.places(network)[-1]
        balance = found.median(place, line, f"{way}_balance")
        evenly = "are used evenly" if is_even else "are not used evenly"
        text = f"{line}: ports {evenly}, {way} (busiest port over the mean)"
        if balance is None:
            yield not_measured(where, text, "by figure")
            continue
        yield Claim(
            where,
            text,
            "by figure",
            f"{balance:.2f}",
            judged((round(balance, 2) <= EVEN) == is_even),
            f"even: up to {EVEN}; {place[2]} streams a pair",
        )


def disorder_claims(rows, where, pattern):
    found = Placements(rows)
    for network in found.networks:
        place = found.places(network, pattern)[-1]
        shares = {
            line: found.median(place, line, "out_of_order_share")
            for line in (PAPER, "round-robin", DEFAULT)
        }
        note = (
            f"{place[2]} streams a pair; the paper counts packets that report disorder, "
            "we count packets out of order"
        )
        yield demanded_as(
            where, f"{PAPER}: packets out of order", PAPER_SACK_PERCENT, shares[PAPER], note
        )
        if None in (shares[PAPER], shares["round-robin"]):
            continue
        more = shares["round-robin"] > shares[PAPER]
        yield Claim(
            where,
            f"more packets out of order with round-robin than with {PAPER}",
            "by figure",
            f"{100 * shares['round-robin']:.2f} % and {100 * shares[PAPER]:.2f} %",
            judged(more),
        )


def demanded_as(where, text, paper_percent, share, note):
    """A share of at most what the paper has."""
    return compare(
        where,
        text,
        paper_percent,
        None if share is None else 100 * share,
        unit="%",
        less=True,
        note=note,
    )
