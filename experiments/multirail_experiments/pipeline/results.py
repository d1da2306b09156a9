"""Rows of pipelines, and how they are drawn."""

import statistics

from multirail_experiments import drawing
from multirail_experiments.drawing import plt

# Lines in the roles of the paper's TCP, SocketVIA and VIA.
STYLES = {
    "tcp": ("#c0392b", "-", "v"),
    "shm": ("#1f6fb2", "-", "o"),
    "ucx": ("#2e8b57", "--", "s"),
    "ZeroMQ": ("#8e44ad", "-", "^"),
    "Ray": ("#d68910", "-", "D"),
}


class Found:
    """Rows by job, line, and what tells them apart."""

    def __init__(self, rows):
        self.rows = [row for row in rows if row["kind"] == "pipeline" and "reason" not in row]
        self.jobs, self.lines = (
            list(dict.fromkeys(row[key] for row in self.rows)) for key in ("job", "line")
        )

    def select(self, **wanted):
        return [
            row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())
        ]

    def by(self, key, field, **wanted):
        """Medians of a field over a key."""
        return {
            row[key]: median(row, field)
            for row in self.select(**wanted)
            if median(row, field) is not None
        }


def median(row, field):
    values = [value for value in row.get(field) or [] if value is not None]
    return statistics.median(values) if values else None


def panels(count, title):
    figure, axes = plt.subplots(1, count, figsize=(6.4 * count, 4.6), squeeze=False)
    figure.suptitle(title, fontsize=11)
    for axis in axes[0]:
        axis.grid(True, color="#dddddd", linewidth=0.7)
        drawing.frame(axis)
    return figure, axes[0]


def line(axis, points, label, name, dashes=None):
    if points:
        color, usual, marker = STYLES.get(name, ("black", "-", "x"))
        places = sorted(points)
        axis.plot(
            places,
            [points[place] for place in places],
            dashes or usual,
            color=color,
            marker=marker,
            markersize=4.5,
            linewidth=1.6,
            label=label,
        )


def save(figure, axes, path):
    for axis in axes:
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
