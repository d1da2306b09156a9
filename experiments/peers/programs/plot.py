"""Programs over all rails, beside plain TCP and Multipath TCP."""

from multirail_experiments.claims import demanded
from multirail_experiments.programs.drawing import figures
from multirail_experiments.programs.measure import MPTCP, PLAIN, RUN
from multirail_experiments.programs.results import by_network, ratio

__all__ = ["claims", "figures"]

# The least ratio to plain TCP on each network.
LEAST = {"100+100": 1.9, "100+25": 1.2, "two WANs, 10 and 60 ms": 1.7, "no limit": 0.7}


def claims(rows):
    found = []
    for network, measured in by_network(rows).items():
        for load in dict.fromkeys(load for load, _ in measured):
            ours = measured.get((load, RUN))
            for other, least in ((PLAIN, LEAST[network]), (MPTCP, 1.0)):
                found.append(judged(network, load, ours, measured.get((load, other)), other, least))
    return found


def judged(network, load, ours, other, name, least):
    text = f"{load}: the rate of `{RUN}` over that of `{name}`"
    share = ratio(ours, other)
    if share is None:
        return demanded(network, text, None, least=least)
    note = f"{ours.rate:.1f} and {other.rate:.1f} Mbit/s"
    runs = len(ours.mbit_s)
    return demanded(network, text, share, least=least, note=note, runs=runs)
