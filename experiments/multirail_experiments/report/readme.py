"""The measured part of each experiment's README.md, from its newest run."""

from multirail_experiments.claims import NO_VERDICT
from multirail_experiments.plan import size_name
from multirail_experiments.points import points
from multirail_experiments.report.page import measured_on, table

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
CLAIM_HEADER = ["where", "claim", "source", "expected", "measured", "verdict", "note"]
POINT_HEADER = ["network", "message", "best line", "its Mbit/s", "the default's", "share"]


def write_readme(experiment):
    path = experiment.folder / "README.md"
    before, rest = path.read_text().split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n{section(experiment)}\n{END}{after}")


def section(experiment):
    """The text between the marks, with pictures of the same run."""
    found = experiment.found
    lines = [
        measured_on(found.host, found.plan),
        "",
        *table(CLAIM_HEADER, map(claim_row, experiment.claims)),
    ]
    lost = lost_points(found.rows)
    if lost:
        lines += [
            "",
            "Where the default is more than 3 % behind the best line (†: the CPU was the limit):",
            "",
            *table(POINT_HEADER, point_rows(lost)),
        ]
    lines += cpu_lines(found) + skipped_lines(found)
    for picture in experiment.pictures:
        lines += ["", f"![{picture.stem}]({picture.relative_to(experiment.folder)})"]
    return "\n".join(lines)


def claim_row(claim):
    verdict = claim.verdict
    if claim.runs == 1 and verdict != NO_VERDICT:
        verdict += " (one run)"
    return [
        claim.where,
        claim.text,
        claim.source,
        claim.expected or "-",
        claim.measured,
        verdict,
        claim.note,
    ]


def point_rows(lost):
    for point in lost:
        yield [
            point.network,
            (point.what or size_name(point.message_bytes)) + (" †" if point.cpu_was_limit else ""),
            point.best,
            f"{point.best_mbit_s:.1f}",
            f"{point.default_mbit_s:.1f}",
            f"{point.share:.3f}",
        ]


def lost_points(rows):
    """Points at which the default is behind the best line; none without a default."""
    return [point for point in points(rows) if point.is_lost]


def cpu_lines(found):
    """CPU time by line, for the largest message of each network."""
    rows = []
    for network in found.networks:
        size = found.sizes(network)[-1]
        for line in found.lines(network):
            cpu_s = found.median(line, size, "cpu_s_per_gib", network)
            idle = found.mean(line, size, "cpu_idle_share", network)
            if cpu_s is not None:
                busy = "-" if idle is None else f"{1 - idle:.0%}"
                rows.append([network, size_name(size), line, f"{cpu_s:.2f}", busy])
    if not rows:
        return []
    return [
        "",
        "CPU use: seconds of both processes for a GiB of payload. *Busy* is the share of this "
        "machine's processors that were busy, with both hosts and the kernel's part:",
        "",
        *table(["network", "message", "line", "CPU s/GiB", "busy"], rows),
    ]


def skipped_lines(found):
    rows = dict.fromkeys(
        (row.get("network", "-"), row["line"], row["reason"])
        for row in found.rows
        if "reason" in row
    )
    if not rows:
        return []
    return ["", "Not measured here:", "", *table(["network", "line", "why"], rows)]
