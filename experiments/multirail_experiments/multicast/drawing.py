"""Figures and tables of multicasts, each with the bound and the bytes between clusters."""

import statistics

from multirail_experiments import drawing
from multirail_experiments.drawing import plt
from multirail_experiments.multicast import scenario

# One look for each line, as in drawing.STYLES.
COLORS = {
    "adaptive": "#1f6fb2",
    "adaptive, best rail": "#9ecae1",
    "warm group": "#17becf",
    "mob": "#2e8b57",
    "bittorrent": "#d98200",
    "balanced": "#8e44ad",
    "fpfr": "#c39bd3",
    "magpie": "#7f5539",
    "chain": "#b8860b",
    "flat": "#999999",
    "libtorrent": "#e58a80",
    "libtorrent, tuned": "#c0392b",
    "Open MPI": "#9fb8ad",
    "Open MPI, chain": "#00695c",
    "TCP, root to all": "#444444",
}
for _line, _color in COLORS.items():
    drawing.STYLES.setdefault(_line, (_color, "-", "o", _line))
BOUND = {"color": "black", "linewidth": 1.3, "linestyle": "--"}


def color(line):
    return COLORS.get(line, "#17becf")


def scenario_bars(found, network, path, title):
    """Draws rates above and copies between clusters below, with a group of bars a scenario."""
    lines = found.lines_of(network)
    names = [
        name for name in found.scenarios if any(found.row(network, name, line) for line in lines)
    ]
    figure, (rates, copies) = plt.subplots(
        2, 1, figsize=(max(8.5, 2.3 * len(names)), 6.4), height_ratios=(2, 1), sharex=True
    )
    width = 0.86 / max(len(lines), 1)
    for place, name in enumerate(names):
        bound = found.bound_mb_s(network, name)
        rates.hlines(
            bound, place - 0.45, place + 0.45, label="bound" if place == 0 else None, **BOUND
        )
        rates.text(place + 0.45, bound, f"{bound:.1f}", ha="right", va="bottom", fontsize=8)
        for number, line in enumerate(lines):
            row = found.row(network, name, line)
            if row is None:
                continue
            x = place + (number - (len(lines) - 1) / 2) * width
            rate = found.median(network, name, line)
            rates.bar(x, rate, width, color=color(line))
            rates.errorbar(
                x,
                rate,
                [[rate - min(row["mb_s"])], [max(row["mb_s"]) - rate]],
                color="black",
                linewidth=0.8,
            )
            rates.text(
                x,
                max(row["mb_s"]),
                f" {found.share(network, name, line):.2f}{found.dagger(network, name, line)}",
                rotation=90,
                ha="center",
                va="bottom",
                fontsize=7,
            )
            copies.bar(
                x, found.median(network, name, line, field="wan_copies"), width, color=color(line)
            )
    for line in lines:
        rates.bar(0, 0, color=color(line), label=line)
    rates.set_ylim(0, 1.12 * max(found.bound_mb_s(network, name) for name in names))
    rates.set_ylabel("MB/s to the last host")
    rates.set_title(
        f"{title}\nabove bars: share of the bound; †: the CPU was the limit", fontsize=10.5
    )
    rates.legend(ncols=1, fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.4))
    wan_axis(copies)
    copies.set_xticks(range(len(names)), [scenario.TITLES.get(name, name) for name in names])
    for axes in (rates, copies):
        drawing.frame(axes)
        axes.grid(True, axis="y", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
    finish(figure, path)


def wan_axis(axes):
    axes.set_yscale("log", base=2)
    ticks = (1, 2, 3, 4, 8, 16, 32, 128, 1024)
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.axhline(3, label="3 copies are enough", **BOUND)
    axes.set_ylim(2, None)
    axes.set_ylabel("frames between\nclusters, in files")


def by_number(found, places, path, title, x_label, names=str, is_log=False):
    """Draws lines over numbers, rates above and copies below.

    `places` is (network, scenario, size) by number.
    """
    figure, (rates, copies) = plt.subplots(
        2, 1, figsize=(7.6, 6.4), height_ratios=(2, 1), sharex=True
    )
    bounds = {number: found.bound_mb_s(*place) for number, place in places.items()}
    bounds = {number: bound for number, bound in bounds.items() if bound is not None}
    rates.plot(list(bounds), list(bounds.values()), label="bound", **BOUND)
    for line in found.lines:
        for axes, field in ((rates, "mb_s"), (copies, "wan_copies")):
            rows = {
                number: found.row(network, name, line, size)
                for number, (network, name, size) in places.items()
            }
            values = {number: row[field] for number, row in rows.items() if row}
            if values:
                axes.plot(
                    list(values),
                    [statistics.median(some) for some in values.values()],
                    "-o",
                    color=color(line),
                    label=line,
                    markersize=4.5,
                    linewidth=1.7,
                )
                axes.fill_between(
                    list(values),
                    [min(some) for some in values.values()],
                    [max(some) for some in values.values()],
                    color=color(line),
                    alpha=0.12,
                    linewidth=0,
                )
    for axes in (rates, copies):
        axes.set_xscale("log", base=2)
        axes.grid(True, color="#dddddd", linewidth=0.7)
        drawing.frame(axes)
    if is_log:
        rates.set_yscale("log")
    else:
        rates.set_ylim(bottom=0)
    rates.set_ylabel("MB/s to the last host")
    rates.set_title(title, fontsize=11)
    rates.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.4))
    wan_axis(copies)
    copies.set_xticks(list(places), [names(number) for number in places])
    copies.minorticks_off()
    copies.set_xlabel(x_label)
    finish(figure, path)


def by_size(found, network, path, title):
    """Draws lines over message sizes."""
    by_number(
        found,
        {size: (network, "fast", size) for size in found.sizes_of(network)},
        path,
        title,
        "message, bytes (k = KiB, M = MiB)",
        drawing.short_size,
        is_log=True,
    )


def finish(figure, path):
    # The file has no date or version, so that the same rows give the same file.
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def tables(found):
    """Writes tables.md: everything by network and scenario."""
    yield "# Broadcasts"
    for network, name, size in dict.fromkeys(map(found.place, found.rows)):
        bound = found.bound_mb_s(network, name, size)
        what = f"{network}, {scenario.TITLES.get(name, name)}" + (
            f", {drawing.short_size(size)}" if size is not None else ""
        )
        yield from (
            "",
            f"## {what}" + (f": at most {bound:.2f} MB/s" if bound else ""),
            "",
            "| line | file, MB | seconds | MB/s | of the bound | frames between clusters, in files "
            "| set-up, s | busy | CPU s/GiB |",
            "|" + " --- |" * 9,
        )
        for line in found.lines:
            row = found.row(network, name, line, size)
            if row is None:
                continue

            def median(field):
                return found.median(network, name, line, size, field)

            share = found.share(network, name, line, size)
            gib = row["file_bytes"] * (row["hosts"] - 1) / (1 << 30)
            cells = [
                line + found.dagger(network, name, line, size),
                f"{row['file_bytes'] / 1e6:g}",
                f"{median('seconds'):.3f}",
                f"{median('mb_s'):.3f}",
                "-" if share is None else f"{share:.3f}",
                f"{median('wan_copies'):.2f}",
                f"{median('setup_s'):.1f}",
                f"{median('cpu_busy_share'):.0%}",
                f"{median('cpu_s') / gib:.2f}",
            ]
            yield "| " + " | ".join(cells) + " |"
    yield from (
        "",
        "†: the CPU was the limit. CPU seconds are those of the whole machine, for a GiB that one "
        "host received. Open MPI spins while it waits, so that it is always busy.",
    )
    for row in found.skipped:
        where = ", ".join(
            str(row[key]) for key in ("network", "scenario", "message_bytes") if key in row
        )
        yield f"\nNot measured: {row['line']}: {where}: {row['reason']}"


def write_tables(found, folder):
    (folder / "tables.md").write_text("\n".join(tables(found)) + "\n")
