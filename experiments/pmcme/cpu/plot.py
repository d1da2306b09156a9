"""CPU time that placement costs where nothing else is the limit."""

from multirail_experiments import drawing
from multirail_experiments.claims import demanded
from multirail_experiments.drawing import plt
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.results import Placements

# Limit for a byte, as a multiple of `single`.
TIMES = 1.1
# Limit by the kernel's own count, which takes some of the time.
PROGRAM_NS = 300


def figures(rows, folder):
    found = Placements(rows)
    places = found.places(found.networks[0])
    figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axes, (field, label) in zip(
        panels, (("cpu_s_per_gib", "CPU seconds for a GiB"), ("rate_mbit_s", "Mbit/s"))
    ):
        width = 0.85 / len(found.lines)
        for number, line in enumerate(found.lines):
            axes.bar(
                [at + (number - (len(found.lines) - 1) / 2) * width for at in range(len(places))],
                [found.median(place, line, field) or 0 for place in places],
                width,
                color=placement_drawing.color(line),
                label=placement_drawing.LABELS.get(line, line),
            )
        axes.set_xticks(range(len(places)), [f"{place[2]} streams" for place in places])
        axes.set_ylabel(label)
        drawing.frame(axes)
    figure.suptitle("One host to one, ports as fast as the machine", fontsize=11)
    placement_drawing.finish(figure, panels[0], folder / "cpu.png")
    placement_drawing.write_tables(found, folder)


def claims(rows):
    found = Placements(rows)
    for place in found.places(found.networks[0]):
        for line in ("adaptive", "backlog"):
            yield demanded(
                "beyond the paper",
                f"{line}: CPU time for a byte over that of single, {place[2]} streams",
                found.ratio(place, line, "single", "cpu_s_per_gib"),
                most=TIMES,
            )
    for place in found.places():
        single = found.median(place, "single", "program_ns")
        yield demanded(
            "beyond the paper",
            f"adaptive: the program's time for a packet, {place[0]}, {place[2]} streams",
            found.median(place, "adaptive", "program_ns"),
            most=PROGRAM_NS,
            unit="ns",
            digits=0,
            note=f"{single:.0f} ns with single, which chooses nothing" if single else "",
        )
