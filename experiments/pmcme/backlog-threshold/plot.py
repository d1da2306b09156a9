"""Figure 7: unacknowledged bytes by a stream's rate, and what the threshold does."""

from multirail_experiments import drawing
from multirail_experiments.claims import NO_VERDICT, Claim, judged
from multirail_experiments.drawing import plt
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.results import Placements

PORT, PORTS, LINE = "one port", "4 ports", "plain"
PORT_MBIT_S = 100
THRESHOLD_BYTES = 7000
# The paper draws its threshold at a quarter of the port's rate, where it reads about 6,000.
QUARTER, PAPER_BYTES = 0.25, 6000


def curves(found):
    """Yields each kind of message with its points (rate, backlog)."""
    for pattern in found.patterns:
        places = [place for place in found.places(PORT, pattern) if place[2] > 0]
        points = [
            (found.median(place, LINE), found.median(place, LINE, "backlog_bytes"))
            for place in places
        ]
        if points:
            yield pattern, sorted(points)


def figures(rows, folder):
    found = Placements(rows)
    figure, axes = plt.subplots(figsize=(7.6, 4.6))
    for pattern, points in curves(found):
        axes.plot(*zip(*points), "-o", markersize=4, label=pattern)
    axes.plot(
        [QUARTER * PORT_MBIT_S],
        [PAPER_BYTES],
        "*",
        color="black",
        markersize=13,
        markerfacecolor="white",
        label="the paper, at a quarter of its port",
    )
    axes.axhline(
        THRESHOLD_BYTES,
        color="black",
        linewidth=1,
        linestyle=":",
        label=f"threshold: {THRESHOLD_BYTES} B",
    )
    axes.set_yscale("log")
    axes.set_xlabel(f"rate of one stream on a port of {PORT_MBIT_S} Mbit/s, Mbit/s")
    axes.set_ylabel("written and not acknowledged, bytes")
    axes.set_title("What the policy backlog looks at (figure 7)", fontsize=11)
    axes.grid(True, color="#dddddd", linewidth=0.7)
    drawing.frame(axes)
    drawing.save(figure, folder / "figure-07.png")
    if PORTS in found.networks:
        placement_drawing.patterns(
            found,
            PORTS,
            folder / "thresholds.png",
            "Thresholds of the policy backlog, 4 ports of 100 Mbit/s",
        )
    placement_drawing.write_tables(
        found,
        folder,
        (
            ("backlog_bytes", "not acknowledged, mean B", "{:.0f}", 1),
            ("backlog_median_bytes", "median B", "{:.0f}", 1),
            *placement_drawing.COLUMNS,
        ),
    )


def claims(rows):
    found = Placements(rows)
    for pattern, points in curves(found):
        least = next((rate for rate, backlog in points if backlog > THRESHOLD_BYTES), None)
        if "beside" in pattern:
            # The paper: "Under heavy traffic, streams of less are easily regarded as high bandwidth
            # streams."
            alone = dict(curves(found)).get(pattern.split(",")[0], [])
            alone_least = next(
                (rate for rate, backlog in alone if backlog > THRESHOLD_BYTES), float("inf")
            )
            reached = least is not None and least <= alone_least
            yield Claim(
                "figure 7",
                f"{pattern}: streams of lower rate are over the threshold than alone",
                "by text",
                "-" if least is None else f"from {least:.0f} Mbit/s",
                judged(reached),
                "alone: at no rate below the port's"
                if alone_least == float("inf")
                else f"alone: from {alone_least:.0f} Mbit/s",
            )
            continue
        reached = least is not None and least >= QUARTER * PORT_MBIT_S
        yield Claim(
            "figure 7",
            f"{pattern}: alone, only streams of a quarter of the port's rate and more are over "
            f"{THRESHOLD_BYTES} B",
            f"from {QUARTER * PORT_MBIT_S:.0f} Mbit/s",
            "at no rate below the port's" if least is None else f"from {least:.0f} Mbit/s",
            judged(reached),
        )
    lines = [line for line in found.lines if line.startswith("backlog, ")]
    places = found.places(PORTS)
    if not lines or not places:
        yield Claim(
            "section 3.2",
            "the threshold of 7,000 is as good as any other",
            "by text",
            "-",
            NO_VERDICT,
            "not measured",
        )
        return
    for place in places:
        ours, best = (
            found.median(place, "backlog, 7000", "share"),
            found.best(place, lines, "share"),
        )
        if ours is None:
            continue
        reached = ours >= 0.97 * found.median(place, best, "share")
        yield Claim(
            "section 3.2",
            f"{place[2]} streams one to one: share of all ports with the threshold of 7,000, "
            "within 3 % of the best threshold",
            "by text",
            f"{ours:.2f}",
            judged(reached),
            f"{best}: {found.median(place, best, 'share'):.2f}",
        )
