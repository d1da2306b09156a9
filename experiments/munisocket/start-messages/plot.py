"""Section 5.2: how many Start messages a message of 1024 fragments costs on four channels."""

import math
import statistics

from multirail_experiments import drawing
from multirail_experiments.claims import NO_VERDICT, Claim, compare, judged, number
from multirail_experiments.drawing import plt
from multirail_experiments.plan import M
from multirail_experiments.points import best_everywhere
from multirail_experiments.results import Results

CHANNELS, FRAGMENTS = 4, 1024
EQUATION_10 = CHANNELS + CHANNELS / 2 * (math.log(FRAGMENTS, 4) - 1)
UNLOADED, LOADED = "4x100", "4x100, randomly loaded"
PAPER = {UNLOADED: (4, 5), LOADED: (7.0, 8.1)}
VARIANCE = 0.3
# An average of the paper is over 1000 messages; ours is over the three of a session.


def starts(found, network):
    """Start messages for a message, one value a repeat.

    Every channel that sent one ends the message with one End.
    """
    return [
        count - CHANNELS for count in found.values("two-ended", 2 * M, "control_messages", network)
    ]


def figures(rows, out):
    found = Results(rows)
    figure, axes = plt.subplots(figsize=(7.6, 4.6))
    labels = ["no load", "random load"]
    bars = [
        (
            "two-ended: Start messages",
            drawing.STYLES["two-ended"][0],
            [starts(found, network) for network in PAPER],
        ),
        (
            "adaptive: headers of all kinds",
            drawing.STYLES["adaptive"][0],
            [found.values("adaptive", 2 * M, "control_messages", network) for network in PAPER],
        ),
    ]
    width = 0.3
    for index, (name, color, values) in enumerate(bars):
        places = [place + (index - 0.5) * width for place in range(len(labels))]
        means = [statistics.mean(counts) for counts in values]
        spread = [statistics.stdev(counts) if len(counts) > 1 else 0 for counts in values]
        axes.bar(places, means, width * 0.92, yerr=spread, capsize=4, color=color, label=name)
        for place, mean, above in zip(places, means, spread):
            axes.text(place, mean + above + 0.6, f"{mean:.1f}", ha="center", fontsize=9)
    for place, (least, most) in enumerate(PAPER.values()):
        axes.fill_between(
            [place - width, place],
            least,
            most,
            color="#222222",
            alpha=0.35,
            linewidth=0,
            label="paper: range of Start messages" if place == 0 else None,
        )
    axes.axhline(
        EQUATION_10, color="#888888", linestyle=":", label=f"equation (10): {EQUATION_10:.0f}"
    )
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylabel("control messages for one message of 2 MiB")
    axes.set_title(
        "Section 5.2: 1024 fragments on four rails (shared-counter: 1024 headers)", fontsize=11
    )
    drawing.frame(axes)
    drawing.save(figure, out / "start-messages.png")


def claims(rows):
    found = Results(rows)
    result = []
    for network, condition in ((UNLOADED, "unloaded"), (LOADED, "randomly loaded")):
        counts = starts(found, network)
        mean = statistics.mean(counts)
        least, most = PAPER[network]
        result.append(
            Claim(
                "section 5.2",
                f"Start messages for a message, {condition}",
                f"{least} to {most}",
                f"{mean:.1f}",
                judged(mean <= most),
                f"mean of {len(counts)} sessions with 3 messages each, {min(counts):.1f} to "
                f"{max(counts):.1f}",
            )
        )
        result.append(
            compare(
                "section 5.2",
                f"Start messages against equation (10), {condition}",
                EQUATION_10,
                mean,
                less=True,
                digits=1,
            )
        )
        headers = found.mean("adaptive", 2 * M, "control_messages", network)
        result.append(
            Claim(
                "section 5.2",
                f"headers of the default, {condition}",
                "",
                number(headers, 1),
                NO_VERDICT,
                "shown for comparison: the default announces every run of fragments, and runs get "
                "shorter towards the end",
            )
        )
    counted = found.mean("shared-counter", 2 * M, "control_messages", UNLOADED)
    result.append(
        compare(
            "section 5.2",
            "headers of basic MuniSocket",
            FRAGMENTS,
            counted,
            less=True,
            digits=0,
            note="one for each fragment, and one that opens the message on each channel",
        )
    )
    return [*result, best_everywhere("section 5.2", rows)]
