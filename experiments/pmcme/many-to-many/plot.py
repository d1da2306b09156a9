"""Figures 13 and 16 to 20: all hosts to all, evenness of ports, and packets out of order."""

from multirail_experiments.placement import claims as placement_claims
from multirail_experiments.placement import drawing as placement_drawing

TITLE = "Each of four hosts to the three others, 4 ports of 20 Mbit/s each (figure 13)"
BARS = "figure-16", "one host, all to all (figures 16 to 19)"
PATTERN = "many-to-many"


def figures(rows, folder):
    found = placement_drawing.pattern_figures(rows, folder, 13, TITLE, BARS)
    for network in found.networks:
        placement_drawing.disorder(
            found,
            network,
            PATTERN,
            folder / "figure-20.png",
            "All to all: packets out of order (figure 20)",
        )


def claims(rows):
    yield from placement_claims.pattern_claims(rows, "figure 13")
    for way in ("sent", "received"):
        yield from placement_claims.even_claims(rows, "figure 16", "backlog", way, is_even=True)
        yield from placement_claims.even_claims(rows, "figure 17", "layer2", way, is_even=False)
    yield from placement_claims.disorder_claims(rows, "figure 20", PATTERN)
