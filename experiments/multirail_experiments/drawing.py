"""The look of all figures."""

import statistics
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from multirail_experiments.plan import size_name

# One look for each line in every figure: colour, dashes, marker, label.
STYLES = {
    "adaptive": ("#1f6fb2", "-", "o", "multirail (adaptive, the default)"),
    "two-ended": ("#2e8b57", "-", "s", "two-ended (Enhanced MuniSocket)"),
    "shared-counter": ("#d98200", "-", "^", "shared-counter (basic MuniSocket)"),
    "equal-partition": ("#8e44ad", "--", "D", "equal-partition (Peak)"),
    "tcp": ("#c0392b", "-", "v", "plain TCP, one rail"),
    "tcp, unloaded rail": ("#c0392b", "-", "v", "plain TCP, unloaded rail"),
    "tcp, loaded rail": ("#e58a80", "--", "v", "plain TCP, loaded rail"),
    "oracle": ("#888888", ":", None, "oracle (told the rates)"),
}
MORE_COLORS = (
    "#17becf",
    "#7f5539",
    "#e377c2",
    "#5b6b00",
    "#4b3f99",
    "#00695c",
    "#b8860b",
    "#444444",
)
MORE_MARKERS = ("P", "X", "<", ">", "p", "h", "*", "d")


def style_of(line, order):
    """The look of a line. Lines that STYLES lacks get one by their position among such lines."""
    if line in STYLES:
        return STYLES[line]
    unknown = [name for name in order if name not in STYLES]
    place = unknown.index(line) if line in unknown else 0
    return (
        MORE_COLORS[place % len(MORE_COLORS)],
        "-.",
        MORE_MARKERS[place % len(MORE_MARKERS)],
        line,
    )


def short_size(count):
    return (
        size_name(count)
        .replace(" KiB", "k")
        .replace(" MiB", "M")
        .replace(" GiB", "G")
        .replace(" B", "")
    )


class Figure:
    """Lines over message size; each line may have its own sizes."""

    def __init__(self, title, y_label, lines):
        self.lines = lines
        self.sizes = set()
        self.figure, self.axes = plt.subplots(figsize=(7.6, 4.6))
        self.axes.set_title(title, fontsize=11)
        self.axes.set_xlabel("message size, bytes (k = KiB, M = MiB)")
        self.axes.set_ylabel(y_label)
        self.axes.set_xscale("log", base=2)
        self.axes.grid(True, color="#dddddd", linewidth=0.7)
        frame(self.axes)

    def line(self, name, points, bands=None, label=None):
        """Draws a line. `points` is value by size, `bands` least and most by size."""
        if not points:
            return
        color, dashes, marker, known_as = style_of(name, self.lines)
        sizes = sorted(points)
        self.sizes.update(sizes)
        self.axes.plot(
            sizes,
            [points[size] for size in sizes],
            dashes,
            color=color,
            marker=marker,
            markersize=4.5,
            linewidth=1.7,
            label=label or known_as,
        )
        if bands:
            self.axes.fill_between(
                sizes,
                [bands[size][0] for size in sizes],
                [bands[size][1] for size in sizes],
                color=color,
                alpha=0.12,
                linewidth=0,
            )

    def paper(self, name, points, label):
        """Marks numbers that a paper's text gives."""
        color = style_of(name, self.lines)[0]
        self.sizes.update(points)
        self.axes.plot(
            list(points),
            list(points.values()),
            "*",
            color=color,
            markersize=12,
            markerfacecolor="white",
            markeredgewidth=1.3,
            label=label,
        )

    def level(self, value, label):
        self.axes.axhline(value, color="#888888", linewidth=1, linestyle=":", label=label)

    def save(self, path, bottom=0):
        sizes = sorted(self.sizes)
        self.axes.set_xticks(sizes, [short_size(size) for size in sizes])
        self.axes.minorticks_off()
        if bottom is not None:
            self.axes.set_ylim(bottom=bottom)
        save(self.figure, path)


class Bar(NamedTuple):
    """A bar for the median of several rounds."""

    name: str
    values: list
    color: str
    # What is written beside the bar.
    label: str


def median_bars(title, bars, path, height, margin):
    """Draws horizontal bars, the first on top, with lines from the least to the most value."""
    bars = list(reversed(bars))
    middles = [statistics.median(bar.values) for bar in bars]
    least = [middle - min(bar.values) for middle, bar in zip(middles, bars)]
    most = [max(bar.values) - middle for middle, bar in zip(middles, bars)]
    figure, axes = plt.subplots(figsize=(7.2, height))
    drawn = axes.barh(
        [bar.name for bar in bars],
        middles,
        xerr=[least, most],
        color=[bar.color for bar in bars],
        error_kw={"linewidth": 1},
    )
    axes.bar_label(drawn, [f" {bar.label}" for bar in bars], fontsize=8)
    axes.set_title(f"{title} (lines: least to most of the rounds)", fontsize=10)
    axes.margins(x=margin)
    axes.tick_params(labelsize=8)
    frame(axes)
    save(figure, path)


def frame(axes):
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def save(figure, path):
    """Saves a figure with its legend below, where it covers nothing."""
    for axes in figure.axes:
        if not axes.get_legend_handles_labels()[0] or axes.get_legend():
            continue
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, fontsize=8.5, frameon=False
        )
    # The file has no date or version, so that the same rows give the same file.
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def bandwidths(figure, results, lines, network=None, bands=True):
    """Draws effective bandwidth of each line, with the range of its repeats."""
    for line in lines:
        values = {
            size: results.values(line, size, network=network) for size in results.sizes(network)
        }
        values = {size: found for size, found in values.items() if found}
        figure.line(
            line,
            {size: results.median(line, size, network=network) for size in values},
            {size: (min(found), max(found)) for size, found in values.items()} if bands else None,
        )


def ratios(figure, results, lines, against, network=None):
    for line in lines:
        found = {
            size: results.ratio(line, against, size, network) for size in results.sizes(network)
        }
        figure.line(line, {size: ratio for size, ratio in found.items() if ratio is not None})
