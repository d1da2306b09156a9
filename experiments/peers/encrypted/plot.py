"""Encrypted copies: rates and CPU time beside programs that encrypt, and beside no encryption."""

from multirail_experiments.claims import Claim, Source, judged, not_measured
from multirail_experiments.peers.copies import OURS, figures, panels

__all__ = ["claims", "figures"]

OVER_SSH, PLAINTEXT, SCP = "multirail cp over ssh", "multirail cp --plaintext", "scp"
# Limits of our own: the rate over scp's, the CPU time over scp's, and the rate over that without
# encryption.
LEAST_OF_SCP, MOST_CPU_OF_SCP, LEAST_OF_PLAINTEXT = 2.0, 0.6, 0.8


def claims(rows):
    found = []
    for (network, load), copies in panels(rows).items():
        where, lines = f"{network}, {load}", {copy.line: copy for copy in copies}
        # Elsewhere the network is the limit, or starting the program.
        if network == "unshaped":
            found += [faster(where, lines, OURS, SCP, LEAST_OF_SCP)]
            found += [faster(where, lines, OVER_SSH, SCP, LEAST_OF_SCP)]
            found += [cheaper(where, lines, OURS, SCP, MOST_CPU_OF_SCP)]
            found += [faster(where, lines, OURS, PLAINTEXT, LEAST_OF_PLAINTEXT)]
        found += [best(where, lines)]
    return found


def faster(where, lines, line, other, least):
    text = f"`{line}` has at least {least} times the rate of `{other}`"
    rates = ((lambda copy: copy.mbit_s), "{:.0f} and {:.0f} Mbit/s")
    return compared(where, lines, (line, other), text, least, rates, lambda ratio: ratio >= least)


def cheaper(where, lines, line, other, most):
    text = f"`{line}` needs at most {most} times the CPU time of `{other}`"
    times = ((lambda copy: copy.cpu_s_per_gib), "{:.2f} and {:.2f} s/GiB")
    return compared(where, lines, (line, other), text, most, times, lambda ratio: ratio <= most)


def compared(where, lines, pair, text, limit, measured, is_reached):
    """A claim about the ratio of what `measured` says of two lines."""
    if not all(line in lines for line in pair):
        return not_measured(where, text, source=Source.LIMIT)
    (value, form), copies = measured, [lines[line] for line in pair]
    ours, theirs = map(value, copies)
    ratio = ours / theirs
    return Claim(
        where,
        text,
        f"{limit}",
        f"{ratio:.2f}: {form.format(ours, theirs)}",
        judged(is_reached(ratio)),
        source=Source.LIMIT,
        runs=min(copy.runs for copy in copies),
    )


def best(where, lines):
    """Beside every other program, those that do not encrypt included."""
    text = "`multirail cp` is the fastest"
    others = [copy for name, copy in lines.items() if not name.startswith("multirail")]
    if OURS not in lines or not others:
        return not_measured(where, text, source=Source.PEER)
    other, ours = max(others, key=lambda copy: copy.mbit_s), lines[OURS]
    share = ours.mbit_s / other.mbit_s
    return Claim(
        where,
        text,
        f"{other.line}: {other.mbit_s:.0f} Mbit/s",
        f"{ours.mbit_s:.0f} Mbit/s, {share:.2f} of the best other",
        judged(share >= 1),
        source=Source.PEER,
        runs=min(ours.runs, other.runs),
    )
