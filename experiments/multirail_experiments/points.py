"""The default beside the best line at every point of a plot, whatever kind of plan measured it."""

from multirail_experiments.claims import NO_VERDICT, Claim, Source, judged
from multirail_experiments.multicast import results as multicast
from multirail_experiments.placement import results as placement
from multirail_experiments.results import DEFAULT, NOT_REAL, TOLERANCE, Point, Results

DEFAULT_IS_BEST = f"the default is the best line or within {TOLERANCE:.0%} of it at every point"


def points(rows, default=DEFAULT, not_real=NOT_REAL):
    """A `Point` wherever the default was measured."""
    yield from multicast.points(rows)
    yield from placement.points(rows)
    found = Results(rows)
    for network in found.networks:
        for size in found.sizes(network):
            point = message_point(found, network, size, default, not_real)
            if point is not None:
                yield point


def message_point(found, network, size, default, not_real):
    ours = found.median(default, size, network=network)
    if ours is None:
        return None
    # Lines with `stream_s` send one way, so their rates are not those of a message there and back.
    rates = {
        line: found.median(line, size, network=network)
        for line in found.lines(network)
        if line not in not_real and "stream_s" not in found.messages.get((network, line, size), {})
    }
    best = max((line for line in rates if rates[line] is not None), key=lambda line: rates[line])
    share = 1.0 if best == default else found.ratio(default, best, size, network)
    busy = any(
        found.messages[network, line, size].get("cpu_was_limit", False) for line in (default, best)
    )
    return Point(network, size, best, rates[best], ours, share, busy)


def best_everywhere(where, rows):
    """The claim that the default is the best line, or near it, at every point of a plot."""
    every = list(points(rows))
    if not every:
        return Claim(where, DEFAULT_IS_BEST, "", "-", NO_VERDICT, "not measured", Source.PEER)
    lost = [point for point in every if point.is_lost]
    note = f"least share of the best line: {min(point.share for point in every):.2f}"
    return Claim(
        where,
        DEFAULT_IS_BEST,
        "every point",
        f"{len(every) - len(lost)} of {len(every)} points",
        judged(not lost),
        note,
        Source.PEER,
    )
