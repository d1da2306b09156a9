"""Figures 10 to 13 with as many hosts and ports as the paper had."""

from multirail_experiments.placement import claims as placement_claims
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.results import Placements


def figures(rows, folder):
    found = Placements(rows)
    for number, network in enumerate(found.networks):
        placement_drawing.patterns(found, network, folder / f"more-hosts-{number}.png", network)
    placement_drawing.write_tables(found, folder)


def claims(rows):
    yield from placement_claims.pattern_claims(rows, "figures 10 to 13")
