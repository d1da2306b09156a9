"""The picture and the table of a run: rates of streams and copies by network."""

from multirail_experiments import drawing
from multirail_experiments.background.results import BACKGROUND, PLAIN, by_network
from multirail_experiments.peers.copies import dagger

STREAM_COLOR, BESIDE_PLAIN_COLOR = drawing.STYLES["tcp"][0], drawing.STYLES["tcp, loaded rail"][0]
COPY_COLOR = drawing.STYLES["adaptive"][0]


def figures(rows, out_dir):
    found = by_network(rows)
    for number, (network, measured) in enumerate(found.items(), 1):
        bars(network, list(measured.values()), out_dir / f"network-{number}.png")
    (out_dir / "tables.md").write_text("\n".join(tables(found)) + "\n")


def bars(network, measured, path):
    drawn = [drawing.Bar(one.name, one.mbit_s, color(one), label(one)) for one in measured]
    drawing.median_bars(f"{network}: Mbit/s", drawn, path, height=2.6, margin=0.3)


def color(one):
    if one.kind == "copy":
        return COPY_COLOR
    return BESIDE_PLAIN_COLOR if one.line == PLAIN else STREAM_COLOR


def label(one):
    rtt = "" if one.rtt is None else f", {one.rtt:.0f} ms"
    return f"{one.rate:.1f}{rtt}{dagger(one.cpu_was_limit)}"


def tables(found):
    yield f"# Streams beside `{PLAIN}` and `{BACKGROUND}`, and copies alone"
    for network, measured in found.items():
        header = "| what | Mbit/s | by round | mean round trip, ms |"
        yield from ("", f"## {network}", "", header, "|" + " --- |" * 4)
        for one in measured.values():
            rounds = ", ".join(f"{rate:.1f}" for rate in one.mbit_s)
            rtt = "" if one.rtt is None else f"{one.rtt:.1f}"
            name = one.name + dagger(one.cpu_was_limit)
            yield f"| {name} | {one.rate:.1f} | {rounds} | {rtt} |"
    yield from ("", "Mbit/s and round trips are medians of the rounds. †: the CPU was the limit.")
