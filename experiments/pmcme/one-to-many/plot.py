"""Figures 11 and 21: one host to all others; its ports are the narrow side."""

from multirail_experiments.placement import claims as placement_claims
from multirail_experiments.placement import drawing as placement_drawing

TITLE = "One host to three others, 4 ports of 50 Mbit/s each (figure 11)"
BARS = "figure-21-sent", "the sending host and of a receiver (figure 21, one to many)"


def figures(rows, folder):
    placement_drawing.pattern_figures(rows, folder, 11, TITLE, BARS)


def claims(rows):
    yield from placement_claims.pattern_claims(rows, "figure 11")
    yield from placement_claims.even_claims(rows, "figure 21", "round-robin", "sent", is_even=True)
