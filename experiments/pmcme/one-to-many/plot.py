"""Figures 11 and 21: one host to all others; its ports are the narrow side."""

import placement_drawing
import placement_results
from placement_results import Placements

TITLE = "One host to three others, 4 ports of 100 Mbit/s each (figure 11)"


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        placement_drawing.patterns(found, network, folder / "figure-11.png", TITLE)
        most = found.places(network)[-1]
        placement_drawing.port_bars(found, most, folder / "figure-21-sent.png",
                                    f"Ports of the sending host and of a receiver, {most[2]} streams a pair (figure 21, one to many)")
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_results.pattern_claims(rows, "figure 11")
    yield from placement_results.even_claims(rows, "figure 21", "round-robin", "sent", is_even=True)
