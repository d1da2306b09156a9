"""Figure 10: streams of several processes from one host to one, and both ways at once."""

from multirail_experiments.placement import claims as placement_claims
from multirail_experiments.placement import drawing as placement_drawing

TITLE = "Two of four hosts with 4 ports of 50 Mbit/s each (figure 10)"


def figures(rows, folder):
    placement_drawing.pattern_figures(rows, folder, 10, TITLE)


def claims(rows):
    yield from placement_claims.pattern_claims(rows, "figure 10")
