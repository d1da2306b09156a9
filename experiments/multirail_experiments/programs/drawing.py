"""The picture and the table of a run: rates of programs by load and line."""

from multirail_experiments import drawing
from multirail_experiments.peers.copies import dagger
from multirail_experiments.programs.measure import MPTCP, PLAIN, RUN
from multirail_experiments.programs.results import by_network

COLORS = {
    PLAIN: drawing.STYLES["tcp"][0],
    MPTCP: drawing.MORE_COLORS[0],
    RUN: drawing.STYLES["adaptive"][0],
}


def figures(rows, out_dir):
    found = by_network(rows)
    for number, (network, measured) in enumerate(found.items(), 1):
        bars(network, list(measured.values()), out_dir / f"network-{number}.png")
    (out_dir / "tables.md").write_text("\n".join(tables(found)) + "\n")


def bars(network, measured, path):
    measured = list(reversed(measured))
    figure, axes = drawing.plt.subplots(figsize=(7.2, 0.8 + 0.22 * len(measured)))
    drawn = axes.barh(
        [f"{one.load}, {one.line}" for one in measured],
        [one.rate for one in measured],
        xerr=[
            [one.rate - min(one.mbit_s) for one in measured],
            [max(one.mbit_s) - one.rate for one in measured],
        ],
        color=[COLORS[one.line] for one in measured],
        error_kw={"linewidth": 1},
    )
    axes.bar_label(
        drawn, [f" {one.rate:.1f}{dagger(one.cpu_was_limit)}" for one in measured], fontsize=8
    )
    axes.set_title(f"{network}: Mbit/s (lines: least to most of the rounds)", fontsize=10)
    axes.margins(x=0.2)
    axes.tick_params(labelsize=8)
    drawing.frame(axes)
    drawing.save(figure, path)


def tables(found):
    yield "# Rates of iperf3, from the start of the user's command to its end"
    for network, measured in found.items():
        yield from (
            "",
            f"## {network}",
            "",
            "| load | line | Mbit/s | by round |",
            "|" + " --- |" * 4,
        )
        for one in measured.values():
            rounds = ", ".join(f"{rate:.1f}" for rate in one.mbit_s)
            line = one.line + dagger(one.cpu_was_limit)
            yield f"| {one.load} | {line} | {one.rate:.1f} | {rounds} |"
    yield from ("", "Mbit/s are medians of the rounds. †: the CPU was the limit.")
