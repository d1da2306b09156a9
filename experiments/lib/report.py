"""RESULTS.md and the measured part of each experiment's README.md, from the newest runs."""

import results
from plan import size_name

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
# How the papers are called in RESULTS.md, by folder.
PAPERS = {
    "munisocket": "MuniSocket: High-performance message striping over reliable transport protocols (2006)",
    "psockets": "PSockets: The Case for Application-level Network Striping (2000)",
    "pmcme": "PMCME: A Portable Method for Improving Available Bandwidth of PC Cluster (2014)",
    "mob": "MOB: Zero-configuration High-throughput Multicasting for Grid Applications (2007)",
    "datacutter": "DataCutter over SocketVIA: Impact of High Performance Sockets on Data Intensive Applications (2003)",
    "peers": "Other programs of today",
}


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header),
            *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]


def measured_on(host, plan):
    quick = " A quick run: fewer sizes and repeats." if plan.get("quick") is True else ""
    controls = dict.fromkeys(network.get("congestion", host["congestion_control"]) for network in plan.get("network", [{}]))
    return (f"Measured on {host['date']} with version {host['version']} ({host['commit']}): {host['cores']} cores of {host['cpu']}, "
            f"{host['memory_gib']} GiB, Linux {host['kernel']}, {', '.join(controls)}. "
            f"{where(plan)}{quick}")


def where(plan):
    if plan.get("measures") == "edges" and "network" not in plan:
        return "Both processes are on that one machine."
    if plan.get("measures") in ("pipeline", "microscope"):
        return "All hosts are processes of that one machine."
    return f"{'Both' if plan.get('measures') in (None, 'edges') else 'All'} hosts are namespaces of that one machine."


def claim_row(claim):
    return [claim.where, claim.text, claim.paper_value or "-", claim.our_value, claim.verdict, claim.note]


CLAIM_HEADER = ["where", "claim", "paper", "ours", "verdict", "note"]


def point_rows(points):
    for point in points:
        yield [point.network, (point.what or size_name(point.message_bytes)) + (" †" if point.cpu_was_limit else ""), point.best,
               f"{point.best_mbit_s:.1f}", f"{point.default_mbit_s:.1f}", f"{point.share:.3f}"]


POINT_HEADER = ["network", "message", "best line", "its Mbit/s", "the default's", "share"]


def lost_points(found):
    """Of the plots whose lines are the strategies and tools; none if no default was measured."""
    return [point for point in found.points() if point.is_lost]


def cpu_lines(found):
    """CPU time by line, for the largest message of each network."""
    rows = []
    for network in found.networks:
        size = found.sizes(network)[-1]
        for line in found.lines(network):
            cpu_s, idle = found.median(line, size, "cpu_s_per_gib", network), found.mean(line, size, "cpu_idle_share", network)
            if cpu_s is not None:
                rows.append([network, size_name(size), line, f"{cpu_s:.2f}", "-" if idle is None else f"{1 - idle:.0%}"])
    if not rows:
        return []
    return ["", "CPU use: seconds of both processes for a GiB of payload, and the share of this machine's processors (both hosts, the "
            "kernel's part included) that were busy meanwhile:", "",
            *table(["network", "message", "line", "CPU s/GiB", "busy"], rows)]


def skipped_lines(found):
    rows = dict.fromkeys((row.get("network", "-"), row["line"], row["reason"]) for row in found.rows if "reason" in row)
    return ["", "Not measured here:", "", *table(["network", "line", "why"], rows)] if rows else []


def section(experiment):
    """The measured part of one README.md. Pictures are shown from the run that they were drawn of."""
    found = experiment.found
    lines = [measured_on(found.host, found.plan), "", *table(CLAIM_HEADER, map(claim_row, experiment.claims))]
    lost = lost_points(found)
    if lost:
        lines += ["", "Where the default is not the best line or within 3 % of it (†: the CPU was the limit):", "",
                  *table(POINT_HEADER, point_rows(lost))]
    lines += cpu_lines(found) + skipped_lines(found)
    for picture in experiment.pictures:
        lines += ["", f"![{picture.stem}]({picture.relative_to(experiment.folder)})"]
    return "\n".join(lines)


def write_readme(experiment):
    path = experiment.folder / "README.md"
    before, rest = path.read_text().split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n{section(experiment)}\n{END}{after}")


def write_results(path, experiments):
    """`experiments`: those with results, in order."""
    lines = ["# Results", "",
             "Papers' figures drawn again, by `make experiments`; this file is written by `experiments/run`. A claim is *reached* if our "
             "number is at least as good as the paper's. What is compared was measured within the same minutes; CPU use, set-up and "
             "pictures are in each experiment's folder.", "",
             "The default is the strategy `adaptive`. The best line is the best of all lines of a plot at one message size, except "
             "`oracle`, which is told the rails' rates beforehand."]
    claims = [claim for experiment in experiments for claim in experiment.claims]
    reached = sum(claim.verdict == results.REACHED for claim in claims)
    counted = sum(claim.verdict != results.NOT_AVAILABLE for claim in claims)
    lines += ["", f"{reached} of {counted} claims are reached; {len(claims) - counted} have no verdict, for the reason given."]
    paper = None
    for experiment in experiments:
        if experiment.paper != paper:
            paper = experiment.paper
            lines += ["", f"## {PAPERS.get(paper, paper)}"]
        lines += ["", f"### [{experiment.title}]({experiment.name}/README.md)", "",
                  measured_on(experiment.found.host, experiment.found.plan), "",
                  *table(CLAIM_HEADER, map(claim_row, experiment.claims))]
    lines += ["", "## Where the default loses", ""]
    lost = [[f"[{experiment.name}]({experiment.name}/README.md)", *row]
            for experiment in experiments for row in point_rows(lost_points(experiment.found))]
    total = sum(1 for experiment in experiments for _ in experiment.found.points())
    lines += [f"The default is the best line, or within 3 % of it, at {total - len(lost)} of {total} points"
              + (". At these it is not (†: the CPU was the limit):" if lost else ".")]
    if lost:
        lines += ["", *table(["plot", *POINT_HEADER], lost)]
    why = [line for experiment in experiments for line in reasons(experiment)]
    if why:
        lines += ["", "## Why what is not reached is not", *why]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def reasons(experiment):
    """`losses.md` of its folder says why something is not reached there; written by hand, so only where something is not."""
    path = experiment.plan.folder / "losses.md"
    missed = any(claim.verdict == results.NOT_REACHED for claim in experiment.claims) or lost_points(experiment.found)
    if not path.exists() or not missed:
        return []
    return ["", f"**{experiment.name}**", "", path.read_text().strip()]
