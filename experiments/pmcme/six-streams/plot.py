"""The points of figures 10 to 13 between four and eight streams a pair."""

from multirail_experiments.placement import claims as placement_claims
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.results import Placements


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        rate = network.split(" ")[3]
        placement_drawing.patterns(
            found, network, folder / f"six-streams-{rate}.png", f"4 hosts, {network}"
        )
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_claims.pattern_claims(rows, "figures 10 to 13")
