"""How long a picture takes, and whether it is the right one."""

import statistics

from edges_results import demand
from pipeline_results import panels, save
from results import NOT_REACHED, REACHED, Claim

SLOW, FAST, WITHIN = "tcp", "shm", "one process"
COLORS = {SLOW: "#c0392b", FAST: "#1f6fb2", WITHIN: "#2e8b57"}
# "Several", as we take it.
GIGAPIXELS = 2


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
        spread = [[m - min(took) for m, took in zip(middle, values)], [max(took) - m for m, took in zip(middle, values)]]
        axes[0].bar([place + 0.27 * (index - 1) for place in range(len(found))], middle, 0.25, yerr=spread, color=color, label=name)
    axes[0].set_xticks(range(len(found)), [f"{view}\n1 : {factor}" for view, factor in found])
    axes[0].set(ylabel="ms", yscale="log")
    save(figure, axes, out / "microscope.png")


def claims(rows):
    slide = next(row for row in rows if row["kind"] == "slide")
    yield demand("microscope", "gigapixels of the slide", GIGAPIXELS, slide["gigapixels"],
                 note=f"{slide['side_pixels']} pixels in each direction, {slide['bytes'] / 1e9:.1f} GB; grown in {slide['took_s']:.0f} s")
    right = [same for row in rows if row["kind"] == "view" for same in row["right"]]
    yield Claim("microscope", "pictures that are, byte by byte, those of a simple loop", "all", f"{sum(right)} of {len(right)}",
                REACHED if all(right) else NOT_REACHED)
    found = views(rows)
    (_, widest), whole = next((key, lines) for key, lines in found.items() if key[0] == "complete")
    part = found["partial", widest]
    for name in whole:
        yield demand("microscope", f"{name}: complete picture over a partial update of an eighth, times as long", 1, ratio(whole[name], part[name]),
                     note=f"{statistics.median(whole[name]):.0f} and {statistics.median(part[name]):.0f} ms")
    for (view, factor), lines in found.items():
        yield demand("microscope", f"{view}, 1 : {factor}: {SLOW} over {FAST}, times as long", 1, ratio(lines[SLOW], lines[FAST]),
                     note=", ".join(f"{name} {statistics.median(took):.1f} ms" for name, took in lines.items()))


def ratio(slow, fast):
    return statistics.median(slow) / statistics.median(fast)
