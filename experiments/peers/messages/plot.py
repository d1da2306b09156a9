"""Effective bandwidth of all programs by message size, and the default's share of the best."""

import re

from multirail_experiments import drawing
from multirail_experiments.claims import Claim, Source, judged
from multirail_experiments.plan import size_name
from multirail_experiments.points import DEFAULT_IS_BEST, points
from multirail_experiments.results import DEFAULT, TOLERANCE, Results

# iperf3 sends one way on one rail, so it is a level in the figure and no line.
STREAM = "iperf3"


def file_name(network):
    return re.sub(r"[^a-z0-9]+", "-", network.lower()).strip("-")


def figures(rows, out_dir):
    results = Results(rows)
    for network in results.networks:
        lines = [line for line in results.lines(network) if not line.startswith(STREAM)]
        figure = drawing.Figure(f"Messages on {network}", "effective Mbit/s", lines)
        drawing.bandwidths(figure, results, lines, network)
        streams = {
            line: results.median(line, results.sizes(network)[-1], network=network)
            for line in results.lines(network)
            if line.startswith(STREAM)
        }
        if streams:
            best = max(streams, key=streams.get)
            figure.level(
                streams[best], f"{best}, the best of {len(streams)}: a stream on the best rail"
            )
        figure.save(out_dir / f"{file_name(network)}.png")
    share = drawing.Figure("The default's share of the best line", "share", results.networks)
    for network in results.networks:
        share.line(
            network,
            {point.message_bytes: point.share for point in points_of(results, network)},
        )
    share.level(1 - TOLERANCE, f"{1 - TOLERANCE:.2f}")
    share.save(out_dir / "share-of-best.png")
    (out_dir / "tables.md").write_text("\n".join(tables(results)) + "\n")


def dagger(point):
    return " †" if point.cpu_was_limit else ""


def tables(results):
    """All lines at all sizes as medians in Mbit/s, and the default's share of the best."""
    yield "# Effective Mbit/s by message size"
    for network in results.networks:
        lines = results.lines(network)
        points = {point.message_bytes: point for point in points_of(results, network)}
        yield from (
            "",
            f"## {network}",
            "",
            "| message | " + " | ".join(lines) + " | best line | share |",
        )
        yield "|" + " --- |" * (len(lines) + 3)
        for size in results.sizes(network):
            rates = (results.median(line, size, network=network) for line in lines)
            point = points.get(size)
            end = [point.best + dagger(point), f"{point.share:.3f}"] if point else ["-", "-"]
            yield (
                "| "
                + " | ".join(
                    [
                        size_name(size),
                        *("-" if rate is None else f"{rate:.1f}" for rate in rates),
                        *end,
                    ]
                )
                + " |"
            )
    skipped = [row for row in results.rows if row["kind"] == "skipped"]
    yield from ("", "†: the CPU was the limit.")
    for row in skipped:
        yield f"\nNot measured: {row['line']} on {row['network']}: {row['reason']}"


def claims(rows):
    return list(all_claims(Results(rows)))


def all_claims(results):
    for network in results.networks:
        every = points_of(results, network)
        if not every:
            continue
        lost = [point for point in every if point.is_lost]
        note = "; ".join(
            f"{size_name(point.message_bytes)}: {point.share:.2f} of {point.best}{dagger(point)}"
            for point in lost
        )
        yield Claim(
            network,
            DEFAULT_IS_BEST,
            "every point",
            f"{len(every) - len(lost)} of {len(every)} points",
            judged(not lost),
            note,
            Source.PEER,
        )
        yield never_below(results, network, "tcp", "plain TCP on the best rail")


def points_of(results, network):
    return [point for point in points(results.rows) if point.network == network]


def never_below(results, network, line, known_as):
    ratios = {size: results.ratio(DEFAULT, line, size, network) for size in results.sizes(network)}
    ratios = {size: ratio for size, ratio in ratios.items() if ratio is not None}
    least = min(ratios, key=ratios.get)
    return Claim(
        network,
        f"the default is never below {known_as}",
        f"least ratio {1 - TOLERANCE:.2f}",
        f"least ratio {ratios[least]:.2f}, at {size_name(least)}",
        judged(ratios[least] >= 1 - TOLERANCE),
        source=Source.PEER,
        runs=len(results.values(DEFAULT, least, network=network)),
    )
