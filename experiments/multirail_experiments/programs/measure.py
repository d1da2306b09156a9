"""Programs as they are, by `mptcpize run` and by `multirail run`, between host a and host b.

load      what is measured: `name`, `program` (a module of loads/) and its keys, `networks`, and
          `lines` if not those of the network
network   a lab of two hosts, and `lines` if not the usual ones
repeats   rounds; each measures every load with every line, one after the other
quick_networks, quick_loads

Each run has a lab of its own. The kernel also sends what a program has written after the program's
end, and 32 connections leave tens of megabytes, which would take their share of the rails from the
next program. It also keeps what it has learned of a destination (tcp_metrics).
"""

import importlib
import subprocess

from multirail_experiments.host import Cpu, is_limit
from multirail_experiments.lab import Lab
from multirail_experiments.plan import DEFAULT_REPEATS, QUICK_REPEATS, matches
from multirail_experiments.programs.lines import LINES, MPTCP, PLAIN, RUN

USUAL_LINES = [PLAIN, MPTCP, RUN]


def measure(plan, multirail, quick, emit):
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
                for name in load.get("lines", network.get("lines", USUAL_LINES)):
                    key = load["name"], name
                    if key in skipped:
                        continue
                    try:
                        with Lab(multirail, network) as lab:
                            value = measured(lab, LINES[name], load)
                        found.setdefault(key, []).append(value)
                    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                        skipped[key] = str(error)
        units = {load["name"]: module(load).unit(load) for load in loads}
        for (load, line), values in found.items():
            about = {**identity(network, load, line), "unit": units[load]}
            emit({"kind": "program", **about, **row(values)})
        for (load, line), reason in skipped.items():
            emit({**identity(network, load, line), "kind": "skipped", "reason": reason})


def identity(network, load, line):
    return {"network": network["name"], "load": load, "line": line}


def module(load):
    return importlib.import_module(f"multirail_experiments.programs.loads.{load['program']}")


def measured(lab, line, load):
    """The value of one run, and the CPU time of this machine meanwhile."""
    program = module(load)
    reason = program.lacks() or line.lacks(lab)
    if reason is not None:
        raise RuntimeError(reason)
    with line.on(lab) as prefixed, program.serving(prefixed, load) as once:
        cpu = Cpu()
        value = once()
        return {"value": value, **cpu.take()}


def row(values):
    """Values of all rounds as lists, and whether the CPU was the limit."""
    share = round(sum(one["cpu_idle_share"] for one in values) / len(values), 3)
    return {
        "values": [round(one["value"], 3) for one in values],
        "cpu_s": [round(one["cpu_s"], 2) for one in values],
        "cpu_idle_share": share,
        "cpu_was_limit": is_limit(share),
    }
