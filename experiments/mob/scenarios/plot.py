"""Figures 4 and 5: rates by scenario and method, a figure for each network."""

from multirail_experiments.claims import Source, compare, demanded
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.claims import ratio_claim, share_claim, wan_claim
from multirail_experiments.multicast.results import Broadcasts
from multirail_experiments.points import best_everywhere

STATIC, DYNAMIC = ("fast", "slow"), ("fast-slow", "slow-fast", "mayhem")
LIBTORRENT = ["libtorrent", "libtorrent, tuned"]
# Networks with clusters of the same size, and with the root in the smallest cluster.
EQUAL, UNEQUAL = "4x16", "4+12+16+32"
FIGURES = {EQUAL: "figure 4", UNEQUAL: "figure 5"}


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        name = network.replace(", ", "-").replace(" ", "-").replace("+", "-")
        multicast_drawing.scenario_bars(
            found, network, folder / f"{name}.png", f"{network}: one file to all hosts"
        )
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        yield from claims_of(found, network)
    for scenario in (*STATIC, *DYNAMIC):
        ours, equal = (found.share(network, scenario, "adaptive") for network in (UNEQUAL, EQUAL))
        bounds = [found.bound_mb_s(network, scenario) for network in (UNEQUAL, EQUAL)]
        if None not in bounds:
            claim = demanded(
                f"figure 5: {scenario}",
                "adaptive: share of its rate with clusters of 16",
                ours and equal and ours / equal,
                least=0.9,
                runs=found.runs(UNEQUAL, scenario, "adaptive"),
            )
            files = {found.row(n, scenario, "adaptive")["file_bytes"] for n in (UNEQUAL, EQUAL)}
            yield claim if len(files) == 1 else claim.withdrawn("the files had different sizes")
    yield best_everywhere("all", rows)


def claims_of(found, network):
    where = FIGURES.get(network, "as figure 4")
    for scenario in found.scenarios:
        is_static = scenario in STATIC
        if not found.bound_mb_s(network, scenario):
            continue
        yield share_claim(found, where, network, scenario, "adaptive", 0.85 if is_static else 0.8)
        yield wan_claim(found, where, network, scenario, "adaptive")
        yield ratio_claim(found, where, network, scenario, "adaptive", LIBTORRENT, 1.5)
        if "mob" not in found.lines_of(network):
            continue
        if is_static:
            yield share_claim(found, where, network, scenario, "mob", 0.75)
        yield wan_claim(found, where, network, scenario, "mob")
        for other, least in (("balanced", 1.0 if is_static else 1.01), ("bittorrent", 1.01)):
            yield ratio_claim(
                found, where, network, scenario, "mob", other, least, source=Source.PAPER
            )
    if network == EQUAL:
        # These values are in the paper's text; its figures have no numbers.
        for line, share in (("mob", 0.62), ("balanced", 0.42)):
            rates = [found.median(network, scenario, line) for scenario in ("mayhem", "fast")]
            ours = None if None in rates else rates[0] / rates[1]
            yield compare(where, f"{line}: rate in mayhem over that with fast links", share, ours)
