"""Figures 12 and 21: all others to one host; its ports are the narrow side."""

import placement_drawing
import placement_results
from placement_results import Placements

TITLE = "Three hosts to one, 4 ports of 100 Mbit/s each (figure 12)"


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        placement_drawing.patterns(found, network, folder / "figure-12.png", TITLE)
        most = found.places(network)[-1]
        placement_drawing.port_bars(found, most, folder / "figure-21-received.png",
                                    f"Ports of a sender and of the receiving host, {most[2]} streams a pair (figure 21, many to one)")
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_results.pattern_claims(rows, "figure 12")
    yield from placement_results.even_claims(rows, "figure 21", "round-robin", "received", is_even=False)
