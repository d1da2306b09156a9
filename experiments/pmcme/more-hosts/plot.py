"""Figures 10 to 13 with as many hosts and ports as the paper had."""

import placement_drawing
import placement_results
from placement_results import Placements


def figures(rows, folder):
    found = Placements(rows)
    for number, network in enumerate(found.networks):
        placement_drawing.patterns(found, network, folder / f"more-hosts-{number}.png", network)
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_results.pattern_claims(rows, "figures 10 to 13")
