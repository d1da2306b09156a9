"""The third experiment: the five scenarios with a round trip of 100 ms, and without."""

import pathlib

from multirail_experiments import results
from multirail_experiments.claims import NO_VERDICT, Source, compare, demanded
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.claims import ratio_claim, share_claim, wan_claim
from multirail_experiments.multicast.results import Broadcasts
from multirail_experiments.points import best_everywhere

# How much slower methods get in the paper, as a mean over all scenarios.
PAPER_SLOWER = {
    "4x16": {"balanced": 0.003, "bittorrent": 0.38, "mob": 0.075},
    "4+12+16+32": {"balanced": 0.03, "bittorrent": 0.50, "mob": 0.62},
}
OTHER_FILES = "withdrawn or not measured: the two runs sent files of different sizes"
NEAR = pathlib.Path(__file__).parent.parent / "scenarios"


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        name = network.replace("+", "-")
        multicast_drawing.scenario_bars(
            found, network, folder / f"{name}-100-ms.png", f"{network}, 100 ms there and back"
        )
    multicast_drawing.write_tables(found, folder)


def near():
    """The newest run without the delay."""
    run = results.newest(NEAR)
    return Broadcasts(results.read(run / "raw.jsonl") if run else [])


def slower(found, before, network, line):
    """How much slower a line is, as a mean of scenarios; None without comparable runs."""
    ratios = []
    for name in found.scenarios:
        rows = [some.row(network, name, line) for some in (found, before)]
        if None not in rows and rows[0]["file_bytes"] == rows[1]["file_bytes"]:
            ratios.append(found.median(network, name, line) / before.median(network, name, line))
    return 1 - sum(ratios) / len(ratios) if ratios else None


def slower_claim(found, before, network, line, claim):
    """Explains a missing verdict: the two runs sent files of different sizes."""
    made = claim(slower(found, before, network, line))
    return made._replace(note=OTHER_FILES) if made.verdict == NO_VERDICT else made


def claims(rows):
    found, before = Broadcasts(rows), near()
    for network in found.networks:
        where, text = f"section 4.1, {network}", "slower by 100 ms, mean of the scenarios"
        for line, paper in PAPER_SLOWER[network].items():

            def of_paper(ours, line=line, paper=paper):
                return compare(where, f"{line}: {text}", paper, ours, digits=3, less=True)

            yield slower_claim(found, before, network, line, of_paper)

        def of_default(ours):
            return demanded(where, f"adaptive: {text}", ours, most=0.15)

        yield slower_claim(found, before, network, "adaptive", of_default)
        for scenario in found.scenarios:
            if found.bound_mb_s(network, scenario):
                yield from scenario_claims(found, network, scenario)
    yield best_everywhere("section 4.1", rows)


def scenario_claims(found, network, scenario):
    where, least = "section 4.1", 0.85 if scenario in ("fast", "slow") else 0.8
    yield share_claim(found, where, network, scenario, "adaptive", least)
    yield wan_claim(found, where, network, scenario, "adaptive")
    yield ratio_claim(
        found, where, network, scenario, "mob", "bittorrent", 1.01, source=Source.PAPER
    )
    yield ratio_claim(found, where, network, scenario, "adaptive", "libtorrent, tuned", 1.5)
