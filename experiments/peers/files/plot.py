"""Rates of copies by program and network, and a table with their CPU time."""

from multirail_experiments.claims import Claim, Source, judged, not_measured
from multirail_experiments.peers.copies import OURS, figures, panels
from multirail_experiments.results import TOLERANCE

__all__ = ["claims", "figures"]


def claims(rows):
    text = f"`multirail cp` is the fastest or within {TOLERANCE:.0%} of it"
    return [
        claim(f"{network}, {load}", text, copies)
        for (network, load), copies in panels(rows).items()
    ]


def claim(where, text, copies):
    ours = next((copy for copy in copies if copy.line == OURS), None)
    others = [copy for copy in copies if copy.line != OURS]
    if ours is None or not others:
        return not_measured(where, text, source=Source.PEER)
    best = max(others, key=lambda copy: copy.mbit_s)
    share = ours.mbit_s / best.mbit_s
    return Claim(
        where,
        text,
        f"{best.line}: {best.mbit_s:.1f} Mbit/s",
        f"{ours.mbit_s:.1f} Mbit/s, {share:.2f} of the best other",
        judged(share >= 1 - TOLERANCE),
        "†: the CPU was the limit" if ours.cpu_was_limit or best.cpu_was_limit else "",
        Source.PEER,
        min(ours.runs, best.runs),
    )
