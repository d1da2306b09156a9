"""Figure 7: two rails, one of them loaded."""

from multirail_experiments.claims import Claim, compare, judged
from multirail_experiments.drawing import Figure, bandwidths
from multirail_experiments.plan import K, M, size_name
from multirail_experiments.points import best_everywhere
from multirail_experiments.results import Results

UNLOADED, LOADED = "tcp, unloaded rail", "tcp, loaded rail"
PAPER_AVERAGE_MBIT_S, PAPER_ENHANCED_MBIT_S = 82.123, 161.84
SPEED_UP = 1.05


def figures(rows, out):
    found = Results(rows)
    figure = Figure(
        "Figure 7: two rails of 100 Mbit/s, the second loaded",
        "effective bandwidth, Mbit/s",
        found.lines(),
    )
    bandwidths(figure, found, [UNLOADED, LOADED, "equal-partition", "two-ended", "adaptive"])
    figure.paper("two-ended", {2 * M: PAPER_ENHANCED_MBIT_S}, "paper: Enhanced MuniSocket")
    figure.paper(LOADED, {2 * M: PAPER_AVERAGE_MBIT_S}, "paper: average of the two rails alone")
    figure.save(out / "figure-07.png")


def claims(rows):
    found = Results(rows)
    size = 2 * M if 2 * M in found.sizes() else max(found.sizes())
    alone = found.median(UNLOADED, size), found.median(LOADED, size)
    average = sum(alone) / 2
    result = [
        compare(
            "figure 7",
            f"loaded rail's share of its bandwidth without load, {size_name(size)}",
            0.75,
            alone[1] / alone[0],
            less=True,
            note=f"either rail alone gives {average:.1f} Mbit/s on average, in the paper "
            f"{PAPER_AVERAGE_MBIT_S} at 2 MB",
        ).withdrawn("the load was set so that this holds")
    ]
    for line, name in (("two-ended", "Enhanced MuniSocket"), ("adaptive", "the default")):
        least = found.least_size(line, UNLOADED, SPEED_UP)
        result += [
            compare(
                "figure 7",
                f"{name} over the average of either rail, {size_name(size)}",
                PAPER_ENHANCED_MBIT_S / PAPER_AVERAGE_MBIT_S,
                found.median(line, size) / average,
                note=f"{found.median(line, size):.1f} Mbit/s; the paper's {PAPER_ENHANCED_MBIT_S} "
                f"is 0.99 of both rails' sum, ours {found.median(line, size) / sum(alone):.2f}",
            ),
            Claim(
                "figure 7",
                f"{name} faster than TCP on the unloaded rail",
                "from about 40 KB",
                "never" if least is None else f"from {size_name(least)}",
                judged(least is not None and least <= 64 * K),
                "of powers of two, 64 KiB is the next",
            ),
        ]
    return [*result, best_everywhere("figure 7", rows)]
