"""Ports of different rates: shares of the sum."""

from multirail_experiments.placement import claims as placement_claims
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.results import Placements
from multirail_experiments.points import best_everywhere


def figures(rows, folder):
    found = Placements(rows)
    for network in found.networks:
        placement_drawing.patterns(found, network, folder / "unequal.png", f"Ports of {network}")
    placement_drawing.write_tables(found, folder)


def claims(rows):
    found = Placements(rows)
    for network in found.networks:
        for pattern in found.patterns:
            yield from placement_claims.default_claims(found, "beyond the paper", network, pattern)
    yield best_everywhere("beyond the paper", rows)
