"""The third experiment: the five scenarios with 100 ms there and back, beside those without, where they were measured."""

import pathlib

import multicast_drawing
import results
from multicast_results import Broadcasts, demanded, ratio_claim, share_claim, wan_claim

# By how much methods got slower in the paper, over all scenarios.
PAPER_SLOWER = {"4x16": {"balanced": 0.003, "bittorrent": 0.38, "mob": 0.075}, "4+12+16+32": {"balanced": 0.03, "bittorrent": 0.50, "mob": 0.62}}
NEAR = pathlib.Path(__file__).parent.parent / "scenarios"


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        name = network.replace("+", "-")
        multicast_drawing.scenario_bars(found, network, folder / f"{name}-100-ms.png", f"{network}, 100 ms there and back")
    multicast_drawing.write_tables(found, folder)


def near():
    """The newest run without the delay."""
    run = results.newest(NEAR)
    return Broadcasts(results.read(run / "raw.jsonl") if run else [])


def slower(found, before, network, line):
    """By how much, on average over the scenarios that both have; None if there is none."""
    ratios = [found.median(network, name, line) / before.median(network, name, line) for name in found.scenarios
              if found.row(network, name, line) and before.row(network, name, line)]
    return 1 - sum(ratios) / len(ratios) if ratios else None


def claims(rows):
    found, before = Broadcasts(rows), near()
    for network in found.networks:
        for line, paper in PAPER_SLOWER[network].items():
            yield results.compare(f"section 4.1, {network}", f"{line}: slower by 100 ms, mean of the scenarios", paper,
                                  slower(found, before, network, line), digits=3, less=True)
        yield demanded(f"section 4.1, {network}", "adaptive: slower by 100 ms, mean of the scenarios",
                       slower(found, before, network, "adaptive"), most=0.15)
        for scenario in found.scenarios:
            if found.bound_mb_s(network, scenario):
                yield share_claim(found, "section 4.1", network, scenario, "adaptive", 0.85 if scenario in ("fast", "slow") else 0.8)
                yield wan_claim(found, "section 4.1", network, scenario, "adaptive")
                yield ratio_claim(found, "section 4.1", network, scenario, "mob", "bittorrent", 1.01)
                yield ratio_claim(found, "section 4.1", network, scenario, "adaptive", "libtorrent, tuned", 1.5)
    yield results.best_everywhere("section 4.1", results.Results(rows))
