"""Completion time and control traffic by number of hosts, from the example multicast_scale.

    python3 -m multirail_experiments.multicast.scale LINES.jsonl [FOLDER]

draws time.png and control.png, and writes tables.md, in FOLDER or else beside the lines.
"""

import json
import pathlib
import sys

from multirail_experiments import drawing
from multirail_experiments.drawing import plt
from multirail_experiments.multicast import drawing as multicast_drawing

# Figures show the most clusters that were run with each number of hosts; the table has all.
METHODS = ("adaptive", "mob", "bittorrent", "balanced", "fpfr", "magpie", "chain", "flat")


def read(path):
    """The runs; a method that did not run to its end with some number of hosts has no time."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [row for row in rows if "hosts" in row]


def most_clusters(rows):
    """The most clusters by number of hosts."""
    return {
        row["hosts"]: row["clusters"]
        for row in sorted(rows, key=lambda row: (row["hosts"], row["clusters"]))
    }


def series(rows, method, field):
    """A field over hosts, of the runs that completed on all hosts."""
    clusters = most_clusters(rows)
    return {
        row["hosts"]: row[field]
        for row in sorted(rows, key=lambda row: row["hosts"])
        if row["method"] == method
        and row["end"] == "done"
        and row["clusters"] == clusters[row["hosts"]]
    }


def axes_of(title, y_label):
    figure, axes = plt.subplots(figsize=(7.6, 4.6))
    axes.set_title(title, fontsize=11)
    axes.set_ylabel(y_label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True, color="#dddddd", linewidth=0.7)
    drawing.frame(axes)
    return figure, axes


def draw(rows, field, title, y_label, path, scale=1.0, bound=False):
    figure, axes = axes_of(title, y_label)
    if bound:
        bounds = {
            row["hosts"]: row["bound_s"]
            for row in sorted(rows, key=lambda row: (row["hosts"], row["clusters"]))
        }
        axes.plot(list(bounds), list(bounds.values()), label="bound", **multicast_drawing.BOUND)
    for method in METHODS:
        points = series(rows, method, field)
        if points:
            axes.plot(
                list(points),
                [value * scale for value in points.values()],
                "-o",
                color=multicast_drawing.color(method),
                label=method,
                markersize=4.5,
                linewidth=1.7,
            )
    clusters = most_clusters(rows)
    axes.set_xticks(list(clusters), [f"{hosts:,}\n({count})" for hosts, count in clusters.items()])
    axes.set_xlabel("hosts (clusters)")
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawing.save(figure, path)


def table(rows):
    yield "# Methods by number of hosts"
    yield ""
    yield (
        "| hosts | clusters | method | seconds | bound, s | copies between clusters "
        "| control messages a host | control bytes of all | pieces twice | run, s |"
    )
    yield "|" + " --- |" * 10
    order = {method: place for place, method in enumerate(METHODS)}
    for row in sorted(
        rows, key=lambda row: (row["hosts"], row["clusters"], order.get(row["method"], len(order)))
    ):
        took = (
            f"{row['seconds']:.1f}"
            if row["end"] == "done"
            else f"{row['end']}, {row['complete']} complete"
        )
        share = row["control_bytes"] / max(row["control_bytes"] + row["piece_bytes"], 1)
        cells = [
            row["hosts"],
            row["clusters"],
            row["method"],
            took,
            f"{row['bound_s']:.1f}",
            f"{row['wan_copies']:.2f}",
            f"{row['control_messages'] / row['hosts']:.0f}",
            f"{share:.3%}",
            row["duplicate_pieces"],
            f"{row['run_s']:.0f}",
        ]
        yield "| " + " | ".join(map(str, cells)) + " |"


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    path = pathlib.Path(arguments[0])
    folder = pathlib.Path(arguments[1]) if len(arguments) == 2 else path.parent
    rows = read(path)
    if not rows:
        print(f"{path}: no runs in it", file=sys.stderr)
        return 2
    draw(
        rows,
        "seconds",
        "256 MiB to all hosts, simulated",
        "seconds until the last host has everything",
        folder / "time.png",
        bound=True,
    )
    draw(
        rows,
        "control_bytes",
        "256 MiB to all hosts, simulated",
        "control traffic of all hosts, MB",
        folder / "control.png",
        scale=1e-6,
    )
    (folder / "tables.md").write_text("\n".join(table(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
