"""The points of figures 10 to 13 between four and eight streams a pair."""

import placement_drawing
import placement_results
from placement_results import Placements


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        rate = network.split(" ")[3]
        placement_drawing.patterns(found, network, folder / f"six-streams-{rate}.png", f"4 hosts, {network}")
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_results.pattern_claims(rows, "figures 10 to 13")
