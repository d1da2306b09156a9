"""A message of 64 KiB there and back, alone, over four ports and over one."""

from multirail_experiments import drawing
from multirail_experiments.claims import demanded
from multirail_experiments.drawing import plt
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.results import Placements

# Limit: four ports must be this many times as fast as one.
TIMES = 3
COLUMNS = (
    ("rtt_us", "there and back, µs", "{:.0f}", 1),
    ("rtt_us_p99", "99th percentile, µs", "{:.0f}", 1),
    ("cpu_idle_share", "idle", "{:.2f}", 1),
)


def figures(rows, folder):
    found = Placements(rows)
    place = found.places()[0]
    lines = [line for line in found.lines if found.median(place, line, "rtt_us")]
    figure, axes = plt.subplots(figsize=(1.5 + 1.1 * len(lines), 3.6), layout="constrained")
    axes.bar(
        range(len(lines)),
        [found.median(place, line, "rtt_us") / 1000 for line in lines],
        0.7,
        color=[placement_drawing.color(line) for line in lines],
    )
    axes.set_xticks(
        range(len(lines)),
        [placement_drawing.LABELS.get(line, line).replace(" (", "\n(") for line in lines],
        fontsize=8,
    )
    axes.set_ylabel("there and back, ms")
    drawing.frame(axes)
    axes.set_title("64 KiB, 4 ports of 100 Mbit/s", fontsize=10.5)
    drawing.save(figure, folder / "one-message.png")
    placement_drawing.write_tables(found, folder, COLUMNS)


def claims(rows):
    found = Placements(rows)
    for place in found.places():
        times = found.ratio(place, "plain", "adaptive", "rtt_us")
        yield demanded(
            "beyond the paper",
            "adaptive: 64 KiB alone, times as fast as by one port",
            times,
            least=TIMES,
            note=f"99th percentile {found.median(place, 'adaptive', 'rtt_us_p99') or 0:.0f} µs",
        )
