"""RESULTS.md: how many claims are reached, by source, paper and folder."""

from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED, Source
from multirail_experiments.paths import HOME
from multirail_experiments.points import points
from multirail_experiments.report.page import outdated, table
from multirail_experiments.report.readme import lost_points

# The papers' names by folder.
PAPERS = {
    "munisocket": "MuniSocket: High-performance message striping over reliable transport "
    "protocols (2006)",
    "psockets": "PSockets: The Case for Application-level Network Striping (2000)",
    "pmcme": "PMCME: A Portable Method for Improving Available Bandwidth of PC Cluster (2014)",
    "mob": "MOB: Zero-configuration High-throughput Multicasting for Grid Applications (2007)",
    "datacutter": "DataCutter over SocketVIA: Impact of High Performance Sockets on Data "
    "Intensive Applications (2003)",
    "peers": "Other programs of today",
}
SOURCES = {
    Source.PAPER: "a number, a figure or a sentence of a paper",
    Source.PEER: "another program or another method, measured within the same minutes",
    Source.LIMIT: "a limit that this project sets itself",
}
# A page written by hand, for what verdicts cannot say.
PREFACE = HOME / "caveats.md"


def write_results(path, experiments):
    """Writes the page. `experiments` are those with results, in order."""
    claims = [claim for experiment in experiments for claim in experiment.claims]
    lines = [
        "# Results",
        "",
        "What the papers, other programs and this project's own limits say, and what was measured. "
        "`experiments/run` writes this page from the newest results; each folder's page has all "
        "claims with their values, pictures, and what differs from the paper's set-up.",
        "",
        *headline(claims),
    ]
    if PREFACE.exists():
        lines += ["", PREFACE.read_text().strip()]
    for paper in dict.fromkeys(experiment.paper for experiment in experiments):
        lines += ["", f"## {PAPERS.get(paper, paper)}", ""]
        lines += paper_lines([one for one in experiments if one.paper == paper])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def counts(claims, source=None):
    """How many claims of a source have each verdict, and how many verdicts are of one run."""
    chosen = [claim for claim in claims if source in (None, claim.source)]
    verdicts = [claim.verdict for claim in chosen]
    single = sum(claim.runs == 1 and claim.verdict != NO_VERDICT for claim in chosen)
    return [*(verdicts.count(verdict) for verdict in (REACHED, NOT_REACHED, NO_VERDICT)), single]


def headline(claims):
    reached, missed, _, _ = counts(claims, Source.PAPER)
    yield (
        f"Of {reached + missed} claims of papers that have a verdict, {reached} are reached and "
        f"{missed} are not. Other programs and methods, and our own limits, are counted apart:"
    )
    yield ""
    rows = [[source, SOURCES[source], *counts(claims, source)] for source in SOURCES]
    header = ["source", "what a claim is held against", "reached", "not reached", "no verdict"]
    yield from table([*header, "verdicts from one run"], rows)
    single = counts(claims)[-1]
    yield ""
    yield (
        f"{single} verdicts rest on one run each, so their spread is unknown; pages say *(one "
        "run)* there. *No verdict* means withdrawn, not measured, or shown for comparison."
    )


def paper_lines(experiments):
    rows = []
    for experiment in experiments:
        claims = experiment.claims
        best = list(points(experiment.found.rows))
        near = sum(not point.is_lost for point in best)
        rows.append(
            [
                f"[{experiment.title}]({experiment.name}/README.md)",
                *(ratio(claims, source) for source in SOURCES),
                f"{near} of {len(best)}" if best else "-",
                age(experiment.found.host),
            ]
        )
    yield from table(
        ["folder", *(f"{source}: reached" for source in SOURCES), "default is best", "measured"],
        rows,
    )
    missed = [
        [f"[{experiment.name}]({experiment.name}/README.md)", claim]
        for experiment in experiments
        for claim in experiment.claims
        if claim.verdict == NOT_REACHED and claim.source == Source.PAPER
    ]
    if missed:
        yield from ("", "Claims of the paper that are not reached:", "")
        yield from table(
            ["folder", "where", "claim", "paper", "ours"],
            [
                [link, claim.where, claim.text, claim.expected, claim.measured]
                for link, claim in missed
            ],
        )
    why = [
        f"[{one.plan.folder.name}]({one.name}/losses.md)" for one in experiments if has_reasons(one)
    ]
    if why:
        yield from (
            "",
            f"Why claims are not reached, as far as it was looked into: {', '.join(why)}.",
        )


def ratio(claims, source):
    reached, missed, _, _ = counts(claims, source)
    return f"{reached} of {reached + missed}" if reached + missed else "-"


def age(host):
    return host["date"] + (f", {outdated(host)}" if outdated(host) else "")


def has_reasons(experiment):
    """Whether losses.md, which is written by hand, explains something that was not reached."""
    missed = any(claim.verdict == NOT_REACHED for claim in experiment.claims)
    path = experiment.plan.folder / "losses.md"
    return path.exists() and (missed or bool(lost_points(experiment.found.rows)))
