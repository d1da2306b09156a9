"""Weights to many hosts, beside Gloo's broadcast and Ray's."""

from multirail_experiments.claims import Source, demanded
from multirail_experiments.programs.drawing import shown, tables
from multirail_experiments.programs.results import by_network, ratio
from multirail_experiments.python.loads.weights import BOUND, GLOO, MULTIRAIL, RAY

# The least share of the bound, and how many times as fast as others.
LEAST = {BOUND: 0.85, GLOO: 3, RAY: 3}


def figures(rows, folder):
    title = "Weights from memory to 15 hosts in four clusters"
    (folder / "tables.md").write_text("\n".join(tables(by_network(rows), title)) + "\n")


def claims(rows):
    for network, measured in by_network(rows).items():
        for load in dict.fromkeys(load for load, _ in measured):
            ours = measured.get((load, MULTIRAIL))
            for line, least in LEAST.items():
                other = measured.get((load, line))
                # The values are times.
                share = ratio(other, ours)
                note = f"{shown(other.middle)} and {shown(ours.middle)} s" if share else ""
                text = f"{load}: the time of {line} over ours"
                yield demanded(network, text, share, least=least, note=note, source=Source.LIMIT)
