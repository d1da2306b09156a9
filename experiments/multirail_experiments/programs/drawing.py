"""The pictures and the table of a run: rates of programs by network, load and line."""

from multirail_experiments import drawing
from multirail_experiments.peers.copies import dagger
from multirail_experiments.programs.lines import MPTCP, PLAIN, REQUIRE, RUN
from multirail_experiments.programs.results import by_network

COLORS = {
    PLAIN: drawing.STYLES["tcp"][0],
    MPTCP: drawing.MORE_COLORS[0],
    RUN: drawing.STYLES["adaptive"][0],
    REQUIRE: drawing.MORE_COLORS[1],
}
# The unit that pictures have.
DRAWN_UNIT = "Mbit/s"


def figures(rows, out_dir):
    found = by_network(rows)
    for number, (network, measured) in enumerate(found.items(), 1):
        drawn = [one for one in measured.values() if one.unit == DRAWN_UNIT]
        if drawn:
            bars(network, drawn, out_dir / f"network-{number}.png")
    (out_dir / "tables.md").write_text("\n".join(tables(found)) + "\n")


def bars(network, measured, path):
    measured = list(reversed(measured))
    figure, axes = drawing.plt.subplots(figsize=(7.2, 0.8 + 0.22 * len(measured)))
    drawn = axes.barh(
        [f"{one.load}, {one.line}" for one in measured],
        [one.middle for one in measured],
        xerr=[
            [one.middle - min(one.values) for one in measured],
            [max(one.values) - one.middle for one in measured],
        ],
        color=[COLORS[one.line] for one in measured],
        error_kw={"linewidth": 1},
    )
    axes.bar_label(
        drawn, [f" {one.middle:.1f}{dagger(one.cpu_was_limit)}" for one in measured], fontsize=8
    )
    axes.set_title(f"{network}: Mbit/s (lines: least to most of the rounds)", fontsize=10)
    axes.margins(x=0.2)
    axes.tick_params(labelsize=8)
    drawing.frame(axes)
    drawing.save(figure, path)


def tables(found):
    yield "# Programs, from the start of the user's command to its end"
    for network, measured in found.items():
        header = "| load | line | median | unit | by round |"
        yield from ("", f"## {network}", "", header, "|" + " --- |" * 5)
        for one in measured.values():
            rounds = ", ".join(shown(value) for value in one.values)
            line = one.line + dagger(one.cpu_was_limit)
            yield f"| {one.load} | {line} | {shown(one.middle)} | {one.unit} | {rounds} |"
    yield from ("", "†: the CPU was the limit.")


def shown(value):
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
