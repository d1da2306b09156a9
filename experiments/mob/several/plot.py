"""The rate of each of several broadcasts over the same links, beside one alone."""

import statistics

from multirail_experiments import drawing
from multirail_experiments.claims import Source, demanded
from multirail_experiments.drawing import plt
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.results import Broadcasts

NETWORK, SCENARIO = "4x4, quarter rates", "fast"
OURS, PEER = "adaptive", "libtorrent, tuned"
ALONE, AT_ONCE = "one", ("two", "four", "four from four clusters")
# The slowest broadcast over the mean, and all together over one alone.
LEAST_FAIR, LEAST_SUM = 0.7, 0.9
# Against libtorrent. Where both are fair, the rest is chance.
LEAST_OF_PEER = {"slowest broadcast over the mean": 0.9, "rate of all together": 1.0}


def rates(found, line):
    """The MB/s of each broadcast, in a list for each repeat."""
    row = found.row(NETWORK, SCENARIO, line)
    if row is None:
        return []
    megabytes = row["file_bytes"] / 1e6
    return [[megabytes / seconds for seconds in each_s] for each_s in row["each_s"]]


def slowest_over_mean(each):
    return min(each) / statistics.mean(each)


def jain(each):
    """Jain's index: 1 if all rates are equal, 1/n if one has all."""
    return sum(each) ** 2 / (len(each) * sum(rate**2 for rate in each))


def together(each):
    """All bytes over the time of the last broadcast. The sum of rates is larger."""
    return len(each) * min(each)


def median_of(found, line, measure):
    return statistics.median(map(measure, rates(found, line))) if rates(found, line) else None


def figures(rows, folder):
    found = Broadcasts(rows)
    lines = [line for line in found.lines if rates(found, line)]
    figure, axes = plt.subplots(figsize=(8.6, 0.55 * len(lines) + 1.2))
    for place, line in enumerate(lines):
        # The broadcasts of all repeats, the fastest first, one above the other.
        ordered = [sorted(each, reverse=True) for each in rates(found, line)]
        left = 0.0
        color = multicast_drawing.color(OURS if line.startswith(OURS) else PEER)
        for each in zip(*ordered):
            rate = statistics.median(each)
            axes.barh(place, rate, left=left, color=color, edgecolor="white")
            left += rate
        fair = median_of(found, line, slowest_over_mean)
        axes.text(left, place, f" {fair:.2f}{found.dagger(NETWORK, SCENARIO, line)}", va="center")
    bound = found.bound_mb_s(NETWORK, SCENARIO)
    axes.axvline(bound, label="bound of one alone", **multicast_drawing.BOUND)
    axes.set_yticks(range(len(lines)), lines)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("MB/s to the last host, a part for each broadcast")
    axes.set_title("Beside bars: the slowest broadcast over the mean", fontsize=11)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawing.frame(axes)
    multicast_drawing.finish(figure, folder / "rates.png")
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for count in AT_ONCE:
        yield from claims_of(found, count)


def claims_of(found, count):
    line, peer = f"{OURS}, {count}", f"{PEER}, {count}"
    where, runs = f"{NETWORK}: {count} at once", found.runs(NETWORK, SCENARIO, line)
    index, note = median_of(found, line, jain), ""
    if index is not None:
        each = ", ".join(f"{rate:.2f}" for rate in sorted(rates(found, line)[0]))
        note = f"Jain's index {index:.3f}; first repeat {each} MB/s"
        note += found.dagger(NETWORK, SCENARIO, line)
    yield demanded(
        where,
        f"{OURS}: slowest broadcast over the mean",
        median_of(found, line, slowest_over_mean),
        least=LEAST_FAIR,
        note=note,
        runs=runs,
    )
    all_mb_s, alone_mb_s = (median_of(found, name, together) for name in (line, f"{OURS}, {ALONE}"))
    yield demanded(
        where,
        f"{OURS}: rate of all together over that of one alone",
        all_mb_s and alone_mb_s and all_mb_s / alone_mb_s,
        least=LEAST_SUM,
        note=f"{all_mb_s:.2f} and {alone_mb_s:.2f} MB/s" if all_mb_s and alone_mb_s else "",
        runs=runs,
    )
    for text, measure in (
        ("slowest broadcast over the mean", slowest_over_mean),
        ("rate of all together", together),
    ):
        ours, theirs = (median_of(found, name, measure) for name in (line, peer))
        both = [len(rates(found, name)) for name in (line, peer)]
        yield demanded(
            where,
            f"{OURS}: {text}, over that of {PEER}",
            ours and theirs and ours / theirs,
            least=LEAST_OF_PEER[text],
            note=f"{ours:.2f} and {theirs:.2f}" if ours and theirs else "",
            source=Source.PEER,
            runs=min(both),
        )
