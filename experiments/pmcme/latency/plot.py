"""Figure 14: a ping-pong of 64 bytes, alone and beside streams."""

from multirail_experiments import drawing
from multirail_experiments.claims import compare, demanded
from multirail_experiments.drawing import plt
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.results import Placements

PATTERN = "ping-pong"
# The paper's one-way times with PMCME and with one port.
PAPER_US = {"backlog": 39.4, "single": 37.4}
# Limits: of the idle round trip as a multiple of a plain port's; of the 99th percentile in µs
# beside fewer streams than ports; of that beside four streams as a share of that with `single`.
IDLE_TIMES, FREE_US, FULL_TIMES = 1.1, 100, 0.5
COLUMNS = (
    ("rtt_us", "round trip, µs", "{:.1f}", 1),
    ("rtt_us_p99", "99th percentile, µs", "{:.1f}", 1),
    ("beside_mbit_s", "beside, Mbit/s", "{:.1f}", 1),
    ("cpu_idle_share", "idle", "{:.2f}", 1),
)


def places(found):
    return {place[2]: place for place in found.places(pattern=PATTERN)}


def figures(rows, folder):
    found = Placements(rows)
    where = places(found)
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
    for axes, (field, label) in zip(
        panels, (("rtt_us", "mean"), ("rtt_us_p99", "99th percentile"))
    ):
        for line in found.lines:
            values = {streams: found.median(place, line, field) for streams, place in where.items()}
            values = {streams: value for streams, value in values.items() if value is not None}
            axes.plot(
                list(values),
                list(values.values()),
                label=placement_drawing.LABELS.get(line, line),
                **placement_drawing.style(line),
            )
        axes.set_yscale("log")
        axes.set_xticks(list(where))
        axes.set_xlabel("streams beside")
        axes.set_ylabel("round trip of 64 bytes, µs")
        axes.set_title(label, fontsize=10.5)
        axes.grid(True, color="#dddddd", linewidth=0.7)
        drawing.frame(axes)
    figure.suptitle(
        "A ping-pong beside streams between the same two hosts, 4 ports of 100 Mbit/s (figure 14)",
        fontsize=11,
    )
    placement_drawing.finish(figure, panels[0], folder / "figure-14.png")
    placement_drawing.write_tables(found, folder, COLUMNS)


def claims(rows):
    found = Placements(rows)
    where = places(found)
    if 0 not in where:
        return
    idle = where[0]

    def times(line, against, place=idle, field="rtt_us"):
        ours, theirs = found.median(place, line, field), found.median(place, against, field)
        return None if ours is None or not theirs else ours / theirs

    yield compare(
        "figure 14",
        "backlog (PMCME): round trip over that of one port, idle",
        PAPER_US["backlog"] / PAPER_US["single"],
        times("backlog", "plain"),
        less=True,
    )
    yield compare(
        "figure 14",
        "backlog (PMCME): round trip over that of round-robin, idle",
        1,
        times("backlog", "round-robin"),
        less=True,
        note="both give packets of a ping to ports in turn; the paper's round-robin gives all "
        "ports one address",
    )
    yield demanded(
        "figure 14",
        "adaptive: round trip over that of a plain port, idle",
        times("adaptive", "plain"),
        most=IDLE_TIMES,
    )
    for streams in (1, 2, 3):
        if streams in where:
            yield demanded(
                "figure 14",
                f"adaptive: 99th percentile beside {streams} streams",
                found.median(where[streams], "adaptive", "rtt_us_p99"),
                most=FREE_US,
                unit="µs",
                digits=0,
                note=f"mean {found.median(where[streams], 'adaptive', 'rtt_us') or 0:.0f} µs"
                + found.dagger(where[streams], "adaptive"),
            )
    if 4 in where:
        yield demanded(
            "figure 14",
            "adaptive: 99th percentile beside 4 streams, over that of single",
            times("adaptive", "single", where[4], "rtt_us_p99"),
            most=FULL_TIMES,
        )
