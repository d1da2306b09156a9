"""Pieces of pages: tables, and how a run was measured."""

import functools
import subprocess

from multirail_experiments.paths import HOME

# A run is outdated after this many commits.
OUTDATED_COMMITS = 100


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(header, rows):
    return [
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(map(cell, row)) + " |" for row in rows),
    ]


def measured_on(host, plan):
    """One paragraph: date, version, machine, and how old the run is."""
    controls = dict.fromkeys(
        network.get("congestion", host["congestion_control"])
        for network in plan.get("network", [{}])
    )
    quick = " A quick run: fewer sizes and repeats." if plan.get("quick") is True else ""
    old = outdated(host)
    return (
        f"Measured on {host['date']} with version {host['version']} ({host['commit']}): "
        f"{host['cores']} cores of {host['cpu']}, {host['memory_gib']} GiB, "
        f"Linux {host['kernel']}, {', '.join(controls)}. {where(plan)}{quick}"
        + (f" **{old[0].upper()}{old[1:]}.**" if old else "")
    )


def where(plan):
    if plan.get("measures") == "edges" and "network" not in plan:
        return "Both processes are on that one machine."
    if plan.get("measures") in ("pipeline", "microscope"):
        return "All hosts are processes of that one machine."
    hosts = "Both" if plan.get("measures") in (None, "edges", "background") else "All"
    return f"{hosts} hosts are namespaces of that one machine."


def outdated(host):
    """Why a run says little of the present code; empty if it is recent or its age is unknown."""
    commit = host.get("commit", "").removesuffix("-dirty")
    count = commits_since(commit)
    return f"outdated: {count} commits have been made since" if count >= OUTDATED_COMMITS else ""


@functools.cache
def commits_since(commit):
    """Commits between a commit and the one that is checked out; 0 if git does not know it."""
    if not commit or commit == "unknown":
        return 0
    done = subprocess.run(
        ["git", "rev-list", "--count", f"{commit}..HEAD"],
        capture_output=True,
        text=True,
        cwd=HOME,
        check=False,
    )
    return int(done.stdout) if done.returncode == 0 else 0
