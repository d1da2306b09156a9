"""Programs in Python that use multirail, and the same programs with other libraries.

load      what is measured: `name`, `program` (a module of loads/) and its keys, `networks`
network   a lab, with `hosts` (a number; default 2) and `rails`
repeats   rounds; each measures every load with every line, one after the other
quick_networks, quick_loads

A load's module has `LINES` (names), `unit(load)`, and `measured(lab, line, load)`, which returns a
value or raises; it may have `lab(multirail, network)`. Each value is measured in a lab of its own.
`scripts/setup python` installs the libraries, and the package itself, below target/.
"""

import importlib
import subprocess

from multirail_experiments.host import Cpu
from multirail_experiments.lab import Lab
from multirail_experiments.paths import HOME, PYTHON_ENVIRONMENT
from multirail_experiments.plan import DEFAULT_REPEATS, QUICK_REPEATS, matches
from multirail_experiments.programs.measure import identity, row

SCRIPTS = HOME / "multirail_experiments/python/scripts"


def measure(plan, multirail, quick, emit):
    """Emits the plan, then a row for each network, load and line."""
    table = plan.table
    emit({"kind": "plan", "name": plan.name, "quick": quick, **table})
    repeats = QUICK_REPEATS if quick else table.get("repeats", DEFAULT_REPEATS)
    for network in plan.networks_measured(quick):
        loads = [load for load in table["load"] if network["name"] in load["networks"]]
        if quick:
            loads = [load for load in loads if matches(load["name"], table["quick_loads"])]
        for load in loads:
            of_load(multirail, network, load, repeats, emit)


def of_load(multirail, network, load, repeats, emit):
    """Emits a row for each line of a load: its values, or why there are none."""
    program = importlib.import_module(f"multirail_experiments.python.loads.{load['program']}")
    make_lab = getattr(program, "lab", Lab)
    found, skipped = {}, {}
    for _ in range(repeats):
        for line in program.LINES:
            if line in skipped:
                continue
            try:
                with make_lab(multirail, network) as lab:
                    cpu = Cpu()
                    value = program.measured(lab, line, load)
                    found.setdefault(line, []).append({"value": value, **cpu.take()})
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                skipped[line] = str(error)
    for line, values in found.items():
        about = {**identity(network, load["name"], line), "unit": program.unit(load)}
        emit({"kind": "program", **about, **row(values)})
    for line, reason in skipped.items():
        emit({**identity(network, load["name"], line), "kind": "skipped", "reason": reason})


def script(name):
    """The command line of a script of scripts/ in the environment with all libraries."""
    python = PYTHON_ENVIRONMENT / "bin/python"
    if not python.exists():
        raise RuntimeError("the libraries are not installed: run `scripts/setup python`")
    return [python, "-B", SCRIPTS / f"{name}.py"]
