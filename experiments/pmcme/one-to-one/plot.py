"""Figure 10: streams of several processes from one host to one, and both ways at once."""

import placement_drawing
import placement_results

TITLE = "Two of four hosts with 4 ports of 50 Mbit/s each (figure 10)"


def figures(rows, folder):
    placement_drawing.pattern_figures(rows, folder, 10, TITLE)


def claims(rows):
    yield from placement_results.pattern_claims(rows, "figure 10")
