"""How long each picture takes, and whether its content is right."""

import statistics

from multirail_experiments.claims import Claim, Source, demanded, judged
from multirail_experiments.pipeline.results import panels, save

SLOW, FAST, WITHIN = "tcp", "shm", "one process"
COLORS = {SLOW: "#c0392b", FAST: "#1f6fb2", WITHIN: "#2e8b57"}


def views(rows):
    """Times by view and zoom, by line."""
    found = {}
    for row in rows:
        if row["kind"] == "view":
            found.setdefault((row["view"], row["factor"]), {})[row["line"]] = row["took_ms"]
    return found


def figures(rows, out):
    found = views(rows)
    figure, axes = panels(1, "From a question to its picture (median, least and most)")
    for index, (name, color) in enumerate(COLORS.items()):
        values = [lines[name] for lines in found.values()]
        middle = [statistics.median(took) for took in values]
        spread = [
            [m - min(took) for m, took in zip(middle, values)],
            [max(took) - m for m, took in zip(middle, values)],
        ]
        axes[0].bar(
            [place + 0.27 * (index - 1) for place in range(len(found))],
            middle,
            0.25,
            yerr=spread,
            color=color,
            label=name,
        )
    axes[0].set_xticks(range(len(found)), [f"{view}\n1 : {factor}" for view, factor in found])
    axes[0].set(ylabel="ms", yscale="log")
    save(figure, axes, out / "microscope.png")


def claims(rows):
    right = [same for row in rows if row["kind"] == "view" for same in row["right"]]
    yield Claim(
        "microscope",
        "pictures that are, byte by byte, those of a simple loop",
        "all",
        f"{sum(right)} of {len(right)}",
        judged(all(right)),
        source=Source.LIMIT,
    )
    found = views(rows)
    (_, widest), whole = next((key, lines) for key, lines in found.items() if key[0] == "complete")
    part = found["partial", widest]
    for name in whole:
        yield demanded(
            "microscope",
            f"{name}: complete picture over a partial update of an eighth, times as long",
            ratio(whole[name], part[name]),
            least=1,
            note=f"{statistics.median(whole[name]):.0f} and {statistics.median(part[name]):.0f} ms",
        )
    for (view, factor), lines in found.items():
        yield demanded(
            "microscope",
            f"{view}, 1 : {factor}: {SLOW} over {FAST}, times as long",
            ratio(lines[SLOW], lines[FAST]),
            least=1,
            note=", ".join(
                f"{name} {statistics.median(took):.1f} ms" for name, took in lines.items()
            ),
        )


def ratio(slow, fast):
    return statistics.median(slow) / statistics.median(fast)
