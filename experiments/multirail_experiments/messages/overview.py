"""docs/bench/peers.svg: the figure of README.md, from the results of peers/messages."""

import matplotlib
import matplotlib.pyplot as plt

from multirail_experiments import drawing
from multirail_experiments.paths import ROOT
from multirail_experiments.plan import K

FIGURE = ROOT / "docs/bench/peers.svg"
NETWORK = "100+25"
# A shaped rail lets one packet pass free after a pause, so smaller messages show more than a wire.
LEAST_BYTES = 16 * K
# Each line: its colour, dashes, marker and label, in the order of the legend.
LINES = {
    "oracle": ("#777777", "--", "", "ideal split, told the rates in advance"),
    "adaptive": ("#1f6fb2", "-", "o", "multirail, without configuration"),
    "mptcp": ("#d98200", "-", "^", "Multipath TCP of Linux"),
    "tcp": ("#c0392b", "-", "v", "plain TCP on the faster network"),
    "openmpi": ("#7f5539", "-", "D", "Open MPI over both networks"),
    "ucx": ("#17a2a2", ":", "s", "UCX over both networks"),
}


def draw(results, path=FIGURE):
    """Draws effective bandwidth by message size; iperf3 has no messages and is left out."""
    # Without a fixed salt, the identifiers in the file would differ each time.
    with matplotlib.rc_context({"svg.hashsalt": "multirail", "font.size": 11}):
        figure, axes = plt.subplots(figsize=(8.6, 4.4))
        sizes = [size for size in results.sizes(NETWORK) if size >= LEAST_BYTES]
        for line, (color, dashes, marker, label) in LINES.items():
            points = {size: results.median(line, size, network=NETWORK) for size in sizes}
            points = {size: rate for size, rate in points.items() if rate is not None}
            axes.plot(
                list(points),
                list(points.values()),
                dashes,
                color=color,
                marker=marker,
                markersize=5.5,
                linewidth=2.6 if line == "adaptive" else 1.7,
                label=label,
                zorder=3 if line == "adaptive" else 2,
            )
        axes.set_title("Messages over two networks, of 100 and of 25 Mbit/s", fontsize=13)
        axes.set_xlabel("message size")
        axes.set_ylabel("effective bandwidth of a ping-pong, Mbit/s")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [drawing.size_name(size) for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(0, 140)
        axes.grid(True, color="#e2e2e2", linewidth=0.7)
        drawing.frame(axes)
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=10, frameon=False
        )
        host = results.host
        axes.text(
            0.5,
            -0.42,
            f"experiments/peers/messages, measured on {host['date']} at commit {host['commit']}, "
            "medians. Both hosts are namespaces of one machine.",
            transform=axes.transAxes,
            horizontalalignment="center",
            fontsize=8,
            color="#666666",
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(
            path,
            format="svg",
            bbox_inches="tight",
            pad_inches=0.2,
            metadata={"Date": None, "Creator": None},
        )
        plt.close(figure)
