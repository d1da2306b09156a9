"""Measures loads with several lines, round by round.

load      what is measured: `name`, `networks`, and keys of its own
repeats   rounds; each measures every load with every line, one after the other
quick_networks, quick_loads

Each run has a lab of its own. The kernel also sends what a program has written after the program's
end, and 32 connections leave tens of megabytes, which would take their share of the rails from the
next program. It also keeps what it has learned of a destination (tcp_metrics).
"""

import subprocess
from collections.abc import Callable
from typing import NamedTuple

from multirail_experiments.host import is_limit
from multirail_experiments.plan import DEFAULT_REPEATS, QUICK_REPEATS, matches


class Kind(NamedTuple):
    """How loads of one kind are measured."""

    # The names of the lines of a load on a network.
    lines: Callable
    # The unit of a load's values.
    unit: Callable
    # A lab for a load on a network: `lab(multirail, network, load)`.
    lab: Callable
    # A value, and the CPU time meanwhile, or an exception: `run(lab, line, load)`.
    run: Callable


def measure(plan, multirail, quick, emit, kind):
    """Emits the plan, then a row for each network, load and line."""
    table = plan.table
    emit({"kind": "plan", "name": plan.name, "quick": quick, **table})
    repeats = QUICK_REPEATS if quick else table.get("repeats", DEFAULT_REPEATS)
    for network in plan.networks_measured(quick):
        loads = [load for load in table["load"] if network["name"] in load["networks"]]
        if quick:
            loads = [load for load in loads if matches(load["name"], table["quick_loads"])]
        found, skipped = {}, {}
        for _ in range(repeats):
            for load in loads:
                for line in kind.lines(network, load):
                    key = load["name"], line
                    if key in skipped:
                        continue
                    try:
                        with kind.lab(multirail, network, load) as lab:
                            found.setdefault(key, []).append(kind.run(lab, line, load))
                    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                        skipped[key] = str(error)
        units = {load["name"]: kind.unit(load) for load in loads}
        for (load, line), values in found.items():
            about = {**identity(network, load, line), "unit": units[load]}
            emit({"kind": "program", **about, **row(values)})
        for (load, line), reason in skipped.items():
            emit({**identity(network, load, line), "kind": "skipped", "reason": reason})


def identity(network, load, line):
    return {"network": network["name"], "load": load, "line": line}


def row(values):
    """Values of all rounds as lists, and whether the CPU was the limit."""
    share = round(sum(one["cpu_idle_share"] for one in values) / len(values), 3)
    return {
        "values": [round(one["value"], 3) for one in values],
        "cpu_s": [round(one["cpu_s"], 2) for one in values],
        "cpu_idle_share": share,
        "cpu_was_limit": is_limit(share),
    }
