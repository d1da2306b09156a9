"""Figure 6: the hosts' own access is the limit, and more hosts a cluster have more of it."""

from multirail_experiments.claims import Source, compare
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.claims import ratio_claim, share_claim, wan_claim
from multirail_experiments.multicast.results import Broadcasts
from multirail_experiments.points import best_everywhere

SCENARIO = "equal"
# In the paper MOB has this multiple of one host's access, where its local network is the limit.
PAPER_TIMES = 29 / 12.5

UNTOLD = "balanced was told the rates of links, but not the access rates of hosts"


def is_told(found, network):
    """Whether `balanced` was told what hosts can send."""
    row = found.row(network, SCENARIO, "balanced")
    return row is None or row.get("is_told_access", False)


def places(found):
    """Places by hosts a cluster."""
    return {int(network.partition("x")[2]): (network, SCENARIO, None) for network in found.networks}


def rate_of(rows):
    """The access rate of the run's plan."""
    plan = next((row for row in rows if row["kind"] == "plan"), None)
    return plan["network"][0]["access"].replace("mbit", " Mbit/s") if plan else "a limited rate"


def figures(rows, folder):
    found = Broadcasts(rows)
    multicast_drawing.by_number(
        found,
        places(found),
        folder / "access.png",
        f"{rate_of(rows)} for each host to other clusters",
        "hosts a cluster",
    )
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        yield share_claim(found, "figure 6", network, SCENARIO, "adaptive", 0.85)
        yield share_claim(found, "figure 6", network, SCENARIO, "mob", 0.75)
        yield wan_claim(found, "figure 6", network, SCENARIO, "adaptive")
        for other in ("bittorrent", "balanced"):
            claim = ratio_claim(
                found, "figure 6", network, SCENARIO, "mob", other, 1.0, source=Source.PAPER
            )
            yield (
                claim if other != "balanced" or is_told(found, network) else claim.withdrawn(UNTOLD)
            )
    rates = {network: found.median(network, SCENARIO, "mob") for network in ("4x1", "4x4")}
    ours = None if None in rates.values() else rates["4x4"] / rates["4x1"]
    yield compare(
        "figure 6", "mob: rate with 4 hosts a cluster over that with one", PAPER_TIMES, ours
    )
    yield best_everywhere("figure 6", rows)
