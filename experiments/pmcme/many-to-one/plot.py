"""Figures 12 and 21: all others to one host; its ports are the narrow side."""

from multirail_experiments.placement import claims as placement_claims
from multirail_experiments.placement import drawing as placement_drawing

TITLE = "Three hosts to one, 4 ports of 50 Mbit/s each (figure 12)"
BARS = "figure-21-received", "a sender and of the receiving host (figure 21, many to one)"


def figures(rows, folder):
    placement_drawing.pattern_figures(rows, folder, 12, TITLE, BARS)


def claims(rows):
    yield from placement_claims.pattern_claims(rows, "figure 12")
    yield from placement_claims.even_claims(
        rows, "figure 21", "round-robin", "received", is_even=False
    )
