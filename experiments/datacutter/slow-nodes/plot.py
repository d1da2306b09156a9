"""Figures 10 and 11, and one slow node of three beside other programs.

Figure 10 is how long a load balancer takes to notice a slow node, figure 11 what slow nodes cost.
"""

import re

from multirail_experiments.claims import NO_VERDICT, Claim, Source, compare, demanded, judged
from multirail_experiments.pipeline.results import STYLES, Found, line, median, panels, save

SLOW, FAST = "tcp", "shm"
PAPER_CHUNKS = {SLOW: 16384, FAST: 2048}
PAPER_REACTION = 8
# Limit for demand-driven scheduling, as a multiple of the ideal time.
WITHIN = 1.1
# The largest difference of execution times that counts as "close" in figure 11.
CLOSE = 0.15


def figure_10(found):
    """Reaction time by line, chunk and factor."""
    result = {}
    for row in found.rows:
        match = re.fullmatch(r"figure 10, (\d+) B, factor (\d+)", row["job"])
        if match:
            result.setdefault((row["line"], int(match[1])), {})[int(match[2])] = median(
                row, "reaction_us"
            )
    return result


def figure_11(found):
    """Execution time by line and factor, over the probability."""
    result = {}
    for row in found.rows:
        match = re.fullmatch(r"figure 11, factor (\d+), probability ([\d.]+)", row["job"])
        if match:
            result.setdefault((row["line"], int(match[1])), {})[float(match[2])] = (
                median(row, "took_ms") / median(row, "ideal_ms"),
                median(row, "took_ms"),
            )
    return result


def figures(rows, out):
    found = Found(rows)
    reactions, times = figure_10(found), figure_11(found)
    if reactions:
        figure, axes = panels(
            1, "Figure 10: until the balancer knows that a node is slow (round-robin)"
        )
        for (name, chunk), points in reactions.items():
            line(
                axes[0],
                points,
                f"{name}, {chunk} B",
                name,
                "-" if PAPER_CHUNKS[name] == chunk else ":",
            )
        axes[0].set(xlabel="times slower", ylabel="us", yscale="log")
        save(figure, axes, out / "figure-10.png")
    if times:
        figure, axes = panels(
            1, "Figure 11: execution time, one node slow for some of its blocks (demand-driven)"
        )
        for (name, factor), points in times.items():
            line(
                axes[0],
                {share: took for share, (_, took) in points.items()},
                f"{name}({factor})",
                name,
                {2: ":", 4: "--", 8: "-"}[factor],
            )
        axes[0].set(xlabel="probability of being slow", ylabel="ms")
        save(figure, axes, out / "figure-11.png")
    bars = [
        (
            f"{row['line']}\n{row['job'].split(', ')[-1]}",
            median(row, "took_ms") / median(row, "ideal_ms"),
            row["line"],
        )
        for row in found.rows
        if row["job"].startswith("one of three")
    ]
    if bars:
        figure, axes = panels(1, "One node of three four times slower: time over the ideal")
        axes[0].bar(
            [name for name, _, _ in bars],
            [value for _, value, _ in bars],
            color=[STYLES.get(name, ("gray",))[0] for _, _, name in bars],
        )
        axes[0].axhline(1, color="black", linewidth=0.8, label="ideal")
        axes[0].tick_params(axis="x", labelsize=7)
        save(figure, axes, out / "one-of-three.png")


def claims(rows):
    found = Found(rows)
    for row in found.rows:
        if row["job"].startswith("one of three"):
            yield slow_copy_claim(row)
    reactions = figure_10(found)
    if all((name, chunk) in reactions for name, chunk in PAPER_CHUNKS.items()):
        for factor in reactions[SLOW, PAPER_CHUNKS[SLOW]]:
            slow, fast = (reactions[name, chunk][factor] for name, chunk in PAPER_CHUNKS.items())
            yield compare(
                "figure 10",
                f"factor {factor}: reaction time, {SLOW} with 16 KB over {FAST} with 2 KB",
                PAPER_REACTION,
                slow / fast,
                digits=1,
                note=f"{slow:.0f} and {fast:.0f} us",
            )
    times = figure_11(found)
    for factor in sorted({factor for _, factor in times}):
        slow, fast = times.get((SLOW, factor)), times.get((FAST, factor))
        if slow and fast:
            apart = max(abs(slow[share][1] / fast[share][1] - 1) for share in slow if share in fast)
            worst = max(value for points in (slow, fast) for value, _ in points.values())
            yield Claim(
                "figure 11",
                f"factor {factor}: {SLOW} is close to {FAST}, most apart",
                "close",
                f"{apart:.0%}",
                judged(apart <= CLOSE),
                f"close: up to {CLOSE:.0%}; most over the ideal: {worst:.2f}",
            )


def slow_copy_claim(row):
    ratio, schedule = median(row, "took_ms") / median(row, "ideal_ms"), row["job"].split(", ")[-1]
    note = f"{median(row, 'took_ms'):.0f} ms"
    if row["line"] in (SLOW, FAST) and schedule == "demand-driven":
        text = f"one node of three 4 times slower, {row['line']}, {schedule}: time over the ideal"
        return demanded("slow copy", text, ratio, most=WITHIN, note=note)
    name = row["line"] if row["line"] not in (SLOW, FAST) else f"{row['line']}, {schedule}"
    text = f"one node of three 4 times slower, {name}: time over the ideal"
    note += "; shown for comparison"
    return Claim("slow copy", text, "", f"{ratio:.2f}", NO_VERDICT, note, Source.PEER)
