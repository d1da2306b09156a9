"""Figures and tables of hosts with several ports."""

from multirail_experiments import drawing
from multirail_experiments.drawing import plt
from multirail_experiments.placement.results import Placements

# One look for each line, as in drawing.STYLES.
COLORS = {
    "adaptive": "#1f6fb2",
    "backlog": "#2e8b57",
    "round-robin": "#d98200",
    "layer2": "#8e44ad",
    "layer3+4": "#c39bd3",
    "single": "#7f5539",
    "backlog, old TCP": "#9ccfb0",
    "round-robin, old TCP": "#f0c890",
    "backlog, 1448": "#9ccfb0",
    "backlog, 7000": "#2e8b57",
    "backlog, 30000": "#17becf",
    "backlog, 65536": "#4b3f99",
    "backlog, 262144": "#e377c2",
    "plain": "#999999",
    "ECMP": "#00695c",
    "MPTCP": "#c0392b",
    "LACP, Open vSwitch": "#444444",
}
LABELS = {
    "adaptive": "adaptive (the default)",
    "backlog": "backlog (PMCME)",
    "ECMP": "kernel ECMP",
    "MPTCP": "MPTCP (opt-in)",
    "plain": "no multirail",
}
# Less idle CPU time before a line is measured means that something else was running.
QUIET_SHARE = 0.8
# The share of a full Ethernet frame that TCP over IPv4 with time stamps has as payload.
PAYLOAD_SHARE = 1448 / 1514
PANELS = (
    ("share", "share of all ports' rate", 1),
    ("slowest_share", "slowest stream\nover the mean", 1),
    ("received_balance", "busiest port over\nthe mean, received", 1),
    ("resent_share", "segments sent\nagain, %", 100),
)


def color(line):
    """A line's colour; a line without one gets it by its name, the same in all figures."""
    return COLORS.get(line) or drawing.MORE_COLORS[sum(line.encode()) % len(drawing.MORE_COLORS)]


def style(line):
    return {
        "color": color(line),
        "marker": "o",
        "markersize": 4.5,
        "linewidth": 1.7,
        "linestyle": "-"
        if line in ("adaptive", "backlog", "round-robin", "layer2", "single", "layer3+4")
        else ":"
        if "old" in line
        else "--",
    }


def pattern_figures(rows, folder, figure, title, bars=None):
    """Draws what all folders of patterns have: the paper's figure, bars of ports, and tables.

    `bars` is the file's name and the title of the bars, which show the most streams. Returns what
    was measured.
    """
    found = Placements(rows)
    for network in found.networks:
        patterns(found, network, folder / f"figure-{figure}.png", title)
        if bars:
            name, shown = bars
            most = found.places(network)[-1]
            port_bars(
                found, most, folder / f"{name}.png", f"Ports of {shown}, {most[2]} streams a pair"
            )
    write_tables(found, folder)
    return found


def patterns(found, network, path, title):
    """Draws a column for each pattern, with bandwidth above and its costs below."""
    names = [pattern for pattern in found.patterns if found.places(network, pattern)]
    fields = [
        field
        for field in PANELS
        if any(
            found.values(place, line, field[0])
            for place in found.places(network)
            for line in found.lines
        )
    ]
    figure, panels = plt.subplots(
        len(fields),
        len(names),
        figsize=(1.5 + 4.3 * len(names), 1.6 + 2.3 * len(fields)),
        squeeze=False,
        height_ratios=[2] + [1] * (len(fields) - 1),
        sharex="col",
        layout="constrained",
    )
    for column, pattern in enumerate(names):
        for axes, (field, label, scale) in zip(panels[:, column], fields):
            for line in found.lines_of(network, pattern):
                over_streams(axes, found, network, pattern, line, field, scale)
            axes.set_ylim(bottom=1 if "balance" in field else 0)
            axes.grid(True, color="#dddddd", linewidth=0.7)
            drawing.frame(axes)
            if column == 0:
                axes.set_ylabel(label)
            if field == "share":
                axes.axhline(
                    PAYLOAD_SHARE,
                    color="black",
                    linewidth=1,
                    linestyle=":",
                    label="all that TCP can have",
                )
                axes.set_ylim(0, 1.02)
                axes.set_title(pattern, fontsize=10.5)
        panels[-1, column].set_xlabel("streams a pair of hosts")
        panels[-1, column].set_xticks(found.streams(network, pattern))
    figure.suptitle(title, fontsize=11.5)
    finish(figure, panels[0, 0], path)


def over_streams(axes, found, network, pattern, line, field, scale):
    values = {
        place[2]: [scale * value for value in found.values(place, line, field)]
        for place in found.places(network, pattern)
    }
    values = {streams: some for streams, some in sorted(values.items()) if some}
    if values:
        medians = [
            scale * found.median((network, pattern, streams), line, field) for streams in values
        ]
        axes.plot(list(values), medians, label=LABELS.get(line, line), **style(line))
        axes.fill_between(
            list(values),
            [min(some) for some in values.values()],
            [max(some) for some in values.values()],
            color=color(line),
            alpha=0.12,
            linewidth=0,
        )


def port_bars(found, place, path, title):
    """Figures 16 to 19 and 21: the share of bytes of each port of the first host.

    Values are those of the first repeat.
    """
    lines = [line for line in found.lines if found.row(place, line)]
    figure, panels = plt.subplots(
        2, 1, figsize=(1.5 + 1.15 * len(lines), 5), sharex=True, layout="constrained"
    )
    for axes, way in zip(panels, ("sent", "received")):
        for number, line in enumerate(lines):
            ports = found.row(place, line)[f"{way}_ports"][0]
            width = 0.8 / len(ports)
            axes.bar(
                [number + (port - (len(ports) - 1) / 2) * width for port in range(len(ports))],
                [100 * part for part in ports],
                0.9 * width,
                color=color(line),
            )
        axes.axhline(100 / len(ports), color="black", linewidth=1, linestyle=":")
        axes.set_ylabel(f"bytes {way} by port, %")
        drawing.frame(axes)
    panels[1].set_xticks(
        range(len(lines)),
        [LABELS.get(line, line).replace(" (", "\n(") for line in lines],
        fontsize=8,
    )
    figure.suptitle(title, fontsize=11)
    drawing.save(figure, path)


def disorder(found, network, pattern, path, title):
    """Figure 20: segments out of order, sent again, and sent again needlessly."""
    streams = found.streams(network, pattern)
    fields = (
        ("out_of_order_share", "came out of order"),
        ("resent_share", "sent again"),
        ("duplicate_share", "sent again for nothing"),
    )
    lines = found.lines_of(network, pattern)
    figure, panels = plt.subplots(1, len(fields), figsize=(13, 3.8), layout="constrained")
    for axes, (field, label) in zip(panels, fields):
        for line in lines:
            over_streams(axes, found, network, pattern, line, field, 100)
        axes.set_yscale("symlog", linthresh=0.01)
        axes.set_ylim(bottom=0)
        axes.set_xticks(streams)
        axes.set_title(f"{label}, % of segments", fontsize=10)
        axes.set_xlabel("streams a pair of hosts")
        axes.grid(True, color="#dddddd", linewidth=0.7)
        drawing.frame(axes)
    figure.suptitle(title, fontsize=11)
    finish(figure, panels[0], path)


def finish(figure, axes, path):
    """Saves a figure with one legend beside all panels."""
    figure.legend(
        *axes.get_legend_handles_labels(),
        fontsize=8.5,
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )
    # The file has no date or version, so that the same rows give the same file.
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


COLUMNS = (
    ("rate_mbit_s", "Mbit/s", "{:.1f}", 1),
    ("share", "of all ports", "{:.3f}", 1),
    ("slowest_share", "slowest / mean", "{:.2f}", 1),
    ("sent_balance", "busiest port, sent", "{:.2f}", 1),
    ("received_balance", "busiest port, received", "{:.2f}", 1),
    ("out_of_order_share", "out of order, %", "{:.2f}", 100),
    ("resent_share", "sent again, %", "{:.2f}", 100),
    ("duplicate_share", "for nothing, %", "{:.3f}", 100),
    ("cpu_s_per_gib", "CPU s/GiB", "{:.1f}", 1),
    ("program_ns", "program, ns", "{:.0f}", 1),
    ("cpu_idle_share", "idle", "{:.2f}", 1),
)


def tables(found, columns=COLUMNS):
    """The lines of tables.md: medians of all fields."""
    yield "# Hosts with several ports"
    for place in found.places():
        network, pattern, streams = place
        shown = [
            column
            for column in columns
            if any(found.values(place, line, column[0]) for line in found.lines)
        ]
        yield from (
            "",
            f"## {network}, {pattern}, {streams}",
            "",
            "| line | " + " | ".join(column[1] for column in shown) + " |",
            "|" + " --- |" * (len(shown) + 1),
        )
        for line in found.lines:
            if found.row(place, line):
                values = [
                    (found.median(place, line, field), text, scale)
                    for field, _, text, scale in shown
                ]
                cells = [
                    "-" if value is None else text.format(scale * value)
                    for value, text, scale in values
                ]
                yield "| " + " | ".join([line + found.dagger(place, line), *cells]) + " |"
    yield from (
        "",
        "Medians of repeats. †: less than a tenth of the CPU time was idle, so the CPU was the "
        "limit. CPU seconds are those of the whole machine.",
    )
    busy = sorted(
        {row["line"] for row in found.rows if min(row.get("idle_before", [1])) < QUIET_SHARE}
    )
    if busy:
        yield f"\nOther programs were running before these were measured: {', '.join(busy)}"
    for row in found.skipped:
        yield f"\nNot measured: {row['network']}, {row['line']}: {row['reason']}"


def write_tables(found, folder, columns=COLUMNS):
    (folder / "tables.md").write_text("\n".join(tables(found, columns)) + "\n")
