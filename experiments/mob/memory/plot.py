"""Peak memory of a host, and CPU seconds for a GiB that one host received, against a plain TCP copy in the same run."""

import statistics

import drawing
import multicast_drawing
from drawing import plt
from multicast_results import Broadcasts, demanded

NETWORK, SCENARIO, PLAIN = "4 hosts", "equal", "TCP, root to all"
MOST_MIB, MOST_TIMES = 64, 1.5
GIB = 1 << 30


def cpu_s_per_gib(found, line):
    """Of all processes, for a GiB that one host received: to receive it, to keep it and, somewhere, to send it."""
    row, cpu_s = found.row(NETWORK, SCENARIO, line), found.median(NETWORK, SCENARIO, line, field="peers_cpu_s")
    return None if cpu_s is None else cpu_s / (row["file_bytes"] * (row["hosts"] - 1) / GIB)


def figures(rows, folder):
    found = Broadcasts(rows)
    lines = [line for line in found.lines if cpu_s_per_gib(found, line) is not None]
    if lines:
        figure, axes = plt.subplots(figsize=(7.6, 0.5 * len(lines) + 1.2))
        bars = axes.barh(lines, [cpu_s_per_gib(found, line) for line in lines], color=[multicast_drawing.color(line) for line in lines])
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
            yield demanded(row["network"], f"{row['line']}: most memory of any host, {row['file_bytes'] / 1e6:g} MB to {row['hosts'] - 1} hosts",
                           statistics.median(row["memory_peak_mib"]), most=MOST_MIB, unit="MiB", digits=1,
                           note=f"pieces of {row['piece_bytes'] >> 10} KiB")
    plain = cpu_s_per_gib(found, PLAIN)
    for line in found.lines:
        ours = cpu_s_per_gib(found, line)
        if line != PLAIN and ours is not None:
            yield demanded(NETWORK, f"{line}: CPU time for a byte over that of {PLAIN}", plain and ours / plain, most=MOST_TIMES,
                           note=f"{ours:.2f} s/GiB; plain TCP {plain:.2f} s/GiB" if plain else "")
