"""Figure 10: streams of several processes from one host to one, and both ways at once."""

import placement_drawing
import placement_results
from placement_results import Placements

TITLE = "Two of four hosts with 4 ports of 100 Mbit/s each (figure 10)"


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        placement_drawing.patterns(found, network, folder / "figure-10.png", TITLE)
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_results.pattern_claims(rows, "figure 10")
