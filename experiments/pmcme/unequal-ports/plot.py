"""Ports of different rates: shares of the sum."""

import placement_drawing
import placement_results
from placement_results import Placements
from results import Results, best_everywhere


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        placement_drawing.patterns(found, network, folder / "unequal.png", f"Ports of {network}")
    placement_drawing.write_tables(found, folder)


def claims(rows):
    found = Placements(rows)
    for network in found.networks:
        for pattern in found.patterns:
            yield from placement_results.default_claims(found, "beyond the paper", network, pattern)
    yield best_everywhere("beyond the paper", Results(rows))
