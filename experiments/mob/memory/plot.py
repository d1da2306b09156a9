"""Peak memory of a host, and CPU time for a GiB against a plain TCP copy of the same run."""

import statistics

from multirail_experiments import drawing
from multirail_experiments.claims import Source, demanded
from multirail_experiments.drawing import plt
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.results import Broadcasts

NETWORK, SCENARIO, PLAIN = "4 hosts", "equal", "TCP, root to all, hashed"
MOST_MIB, MOST_TIMES = 64, 1.5
GIB = 1 << 30


def cpu_s_per_gib(found, line):
    """CPU seconds of all processes for a GiB that one host received."""
    row, cpu_s = (
        found.row(NETWORK, SCENARIO, line),
        found.median(NETWORK, SCENARIO, line, field="peers_cpu_s"),
    )
    return None if cpu_s is None else cpu_s / (row["file_bytes"] * (row["hosts"] - 1) / GIB)


def figures(rows, folder):
    found = Broadcasts(rows)
    lines = [line for line in found.lines if cpu_s_per_gib(found, line) is not None]
    if lines:
        figure, axes = plt.subplots(figsize=(7.6, 0.5 * len(lines) + 1.2))
        bars = axes.barh(
            lines,
            [cpu_s_per_gib(found, line) for line in lines],
            color=[multicast_drawing.color(line) for line in lines],
        )
        axes.bar_label(bars, fmt=" %.2f", fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_xlabel("CPU seconds of all processes for a GiB that one host received")
        drawing.frame(axes)
        drawing.save(figure, folder / "cpu.png")
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for row in found.rows:
        if "memory_peak_mib" in row:
            yield demanded(
                row["network"],
                f"{row['line']}: most memory of any host, "
                f"{row['file_bytes'] / 1e6:g} MB to {row['hosts'] - 1} hosts",
                statistics.median(row["memory_peak_mib"]),
                most=MOST_MIB,
                unit="MiB",
                digits=1,
                note=f"pieces of {row['piece_bytes'] >> 10} KiB",
                runs=len(row["memory_peak_mib"]),
            )
    plain = cpu_s_per_gib(found, PLAIN)
    for line in found.lines:
        ours = cpu_s_per_gib(found, line)
        if not line.startswith("TCP") and ours is not None:
            yield demanded(
                NETWORK,
                f"{line}: CPU time for a byte over that of {PLAIN}",
                plain and ours / plain,
                most=MOST_TIMES,
                note=f"{ours:.2f} s/GiB; plain TCP {plain:.2f} s/GiB" if plain else "",
                source=Source.PEER,
                runs=found.runs(NETWORK, SCENARIO, line),
            )
