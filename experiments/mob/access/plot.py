"""Figure 6: hosts whose own access is the limit; more hosts a cluster have more of it."""

import multicast_drawing
from multicast_results import Broadcasts, ratio_claim, share_claim, wan_claim
from results import Results, best_everywhere, compare

SCENARIO = "equal"
# In the paper, MOB had so many times the access of one host with several, and its local network was the limit then.
PAPER_TIMES = 29 / 12.5


def places(found):
    """By hosts a cluster."""
    return {int(network.partition("x")[2]): (network, SCENARIO, None) for network in found.networks}


def figures(rows, folder):
    found = Broadcasts(rows)
    multicast_drawing.by_number(found, places(found), folder / "access.png", "4 Mbit/s for each host to other clusters", "hosts a cluster")
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        yield share_claim(found, "figure 6", network, SCENARIO, "adaptive", 0.85)
        yield share_claim(found, "figure 6", network, SCENARIO, "mob", 0.75)
        yield wan_claim(found, "figure 6", network, SCENARIO, "adaptive")
        yield ratio_claim(found, "figure 6", network, SCENARIO, "mob", "bittorrent", 1.0)
        yield ratio_claim(found, "figure 6", network, SCENARIO, "mob", "balanced", 1.0)
    rates = {network: found.median(network, SCENARIO, "mob") for network in ("4x1", "4x4")}
    ours = None if None in rates.values() else rates["4x4"] / rates["4x1"]
    yield compare("figure 6", "mob: rate with 4 hosts a cluster over that with one", PAPER_TIMES, ours)
    yield best_everywhere("figure 6", Results(rows))
