"""Copies in the background: what they leave to a stream, and what they get alone."""

from multirail_experiments.background.drawing import figures
from multirail_experiments.background.results import BACKGROUND, PLAIN, by_network, share
from multirail_experiments.claims import demanded

__all__ = ["claims", "figures"]

# Limits of our own: shares of the rate of the stream alone, and of the copy without the option.
LEAST_OF_STREAM, LEAST_OF_COPY = 0.9, 0.9


def claims(rows):
    found = []
    for network, measured in by_network(rows).items():
        beside, alone = measured.get(("stream", BACKGROUND)), measured.get(("stream", ""))
        ours, plain = measured.get(("copy", BACKGROUND)), measured.get(("copy", PLAIN))
        text = f"the rate of a stream beside `{BACKGROUND}`, over its rate alone"
        found += [judged(network, text, beside, alone, LEAST_OF_STREAM)]
        text = f"the rate of `{BACKGROUND}` alone, over that of `{PLAIN}` alone"
        found += [judged(network, text, ours, plain, LEAST_OF_COPY)]
    return found


def judged(network, text, ours, other, least):
    ratio = share(ours, other)
    if ratio is None:
        return demanded(network, text, None, least=least)
    note = f"{ours.rate:.1f} and {other.rate:.1f} Mbit/s"
    return demanded(network, text, ratio, least=least, note=note, runs=len(ours.mbit_s))
