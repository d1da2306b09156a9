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
TITLE = "Programs, from the start of the user's command to its end"
# The unit that pictures have.
DRAWN_UNIT = "Mbit/s"


def figures(rows, out_dir):
    found = by_network(rows)
    for number, (network, measured) in enumerate(found.items(), 1):
        drawn = [one for one in measured.values() if one.unit == DRAWN_UNIT]
        if drawn:
            bars(network, drawn, out_dir / f"network-{number}.png")
    (out_dir / "tables.md").write_text("\n".join(tables(found, TITLE)) + "\n")


def bars(network, measured, path):
    drawn = []
    for one in measured:
        label = shown(one.middle) + dagger(one.cpu_was_limit)
        name = f"{one.load}, {one.line}"
        drawn.append(drawing.Bar(name, one.values, COLORS[one.line], label))
    height = 0.8 + 0.22 * len(drawn)
    drawing.median_bars(f"{network}: {DRAWN_UNIT}", drawn, path, height, margin=0.2)


def tables(found, title):
    """The lines of a page with all values, by network."""
    yield f"# {title}"
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
