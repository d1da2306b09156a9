"""Programs over all rails, beside plain TCP and Multipath TCP."""

from multirail_experiments.claims import demanded
from multirail_experiments.programs.drawing import figures, shown
from multirail_experiments.programs.lines import MPTCP, PLAIN, REQUIRE, RUN
from multirail_experiments.programs.results import by_network, ratio

__all__ = ["claims", "figures"]

EQUAL, UNLIKE, WANS, UNLIMITED = "100+100", "100+25", "two WANs, 10 and 60 ms", "one rail, no limit"
# The sum of the rails' rates, and the share of it that a long transfer must reach.
WANS_MBIT_S, WANS_SHARE = 200, 0.9
# The least ratio to plain TCP, by network and the begin of the load's name. The first counts.
LEAST = [
    (EQUAL, ("rsync", "git"), 1.8),
    (EQUAL, ("",), 1.9),
    (UNLIKE, ("MPI",), 1.15),
    (UNLIKE, ("",), 1.2),
    (WANS, ("1 connection",), 1.0),
    (UNLIMITED, ("1 connection",), 0.7),
    (UNLIMITED, ("",), 0.9),
]
RATES = {"Mbit/s", "requests/s", "transactions/s"}
# A connection may take this long more than a plain one, beside one round trip of the nearer rail.
SETUP_MS, RTT_MS = 1.0, {EQUAL: 0, WANS: 10}
CONNECTIONS_S = 1000
IDLE_KIB = 128


def claims(rows):
    found = []
    for network, measured in by_network(rows).items():
        for load in dict.fromkeys(load for load, _ in measured):
            of = {line: measured.get((load, line)) for line in (PLAIN, MPTCP, RUN, REQUIRE)}
            found += list(of_load(network, load, of))
    return found


def of_load(network, load, of):
    """What is demanded of a load, whose lines `of` has."""
    ours = of[RUN]
    unit = next(one.unit for one in of.values() if one)
    runs = len(ours.values) if ours else None
    if unit in RATES:
        least = next(
            least for where, starts, least in LEAST if where == network and load.startswith(starts)
        )
        for line, of_line, other, limit in (
            (RUN, ours, PLAIN, least),
            (RUN, ours, MPTCP, 1.0),
            *([(REQUIRE, of[REQUIRE], PLAIN, least)] if of[REQUIRE] else []),
        ):
            text = f"{load}: the rate of `{line}` over that of `{other}`"
            yield compared(network, text, of_line, of[other], runs, least=limit)
        if network == WANS:
            text = f"{load}: the share of the sum of the rails"
            share = ours and ours.middle / WANS_MBIT_S
            yield demanded(network, text, share, least=WANS_SHARE, runs=runs)
    elif unit == "connections/s":
        text = f"`{RUN}`: {load}"
        value = ours and ours.middle
        note = f"plain: {shown(of[PLAIN].middle)}" if of[PLAIN] else ""
        yield demanded(
            network, text, value, least=CONNECTIONS_S, digits=0, unit=unit, note=note, runs=runs
        )
    elif unit == "KiB":
        value = ours and ours.middle
        yield demanded(network, load, value, most=IDLE_KIB, digits=0, unit=unit, runs=runs)
    elif load.startswith("Redis"):
        text = f"{load} with `{RUN}` over that of `{PLAIN}`"
        yield compared(network, text, ours, of[PLAIN], runs, most=1.0)
    else:
        text = f"`{RUN}`: {load}: the time more than plain"
        more = ours and of[PLAIN] and ours.middle - of[PLAIN].middle
        most = SETUP_MS + RTT_MS[network]
        yield demanded(network, text, more, most=most, unit=unit, runs=runs)


def compared(network, text, ours, other, runs, **limit):
    share = ratio(ours, other)
    if share is None:
        return demanded(network, text, None, **limit)
    note = f"{shown(ours.middle)} and {shown(other.middle)} {ours.unit}"
    return demanded(network, text, share, note=note, runs=runs, **limit)
