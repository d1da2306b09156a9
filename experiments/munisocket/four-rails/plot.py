"""Figure 10: four equal rails."""

from multirail_experiments.claims import compare
from multirail_experiments.drawing import Figure, bandwidths
from multirail_experiments.plan import K, M, size_name
from multirail_experiments.points import best_everywhere
from multirail_experiments.results import Results

# How much faster Enhanced MuniSocket is than basic MuniSocket in the paper.
PAPER_MARGINS = {128 * K: 1.35, 2 * M: 1.076}
OUR_BASIC = (
    "our basic MuniSocket is faster than the paper's: one task drives all channels, "
    "so nothing contends for its counter"
)


def figures(rows, out):
    found = Results(rows)
    figure = Figure(
        "Figure 10: four rails of 100 Mbit/s", "effective bandwidth, Mbit/s", found.lines()
    )
    bandwidths(figure, found, ["tcp", "shared-counter", "two-ended", "adaptive", "oracle"])
    figure.save(out / "figure-10.png")


def claims(rows):
    found = Results(rows)
    return [
        *(
            compare(
                "figure 10",
                f"{name} over basic MuniSocket, {size_name(size)}",
                margin,
                found.ratio(line, "shared-counter", size),
                digits=3,
                note=OUR_BASIC,
            )
            for line, name in (("two-ended", "Enhanced MuniSocket"), ("adaptive", "the default"))
            for size, margin in PAPER_MARGINS.items()
        ),
        best_everywhere("figure 10", rows),
    ]
