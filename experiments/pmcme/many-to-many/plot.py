"""Figures 13 and 16 to 20: all hosts to all; how evenly ports are used at both sides; what comes out of order."""

import placement_drawing
import placement_results
from placement_results import Placements

TITLE = "Each of four hosts to the three others, 4 ports of 40 Mbit/s each (figure 13)"
PATTERN = "many-to-many"


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        placement_drawing.patterns(found, network, folder / "figure-13.png", TITLE)
        most = found.places(network)[-1]
        placement_drawing.port_bars(found, most, folder / "figure-16.png",
                                    f"Ports of one host, {most[2]} streams a pair, all to all (figures 16 to 19)")
        placement_drawing.disorder(found, network, PATTERN, folder / "figure-20.png", "All to all: packets out of order (figure 20)")
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_results.pattern_claims(rows, "figure 13")
    for way in ("sent", "received"):
        yield from placement_results.even_claims(rows, "figure 16", "backlog", way, is_even=True)
        yield from placement_results.even_claims(rows, "figure 17", "layer2", way, is_even=False)
    yield from placement_results.disorder_claims(rows, "figure 20", PATTERN)
