"""Programs in Python that use multirail, and the same programs with other libraries.

load      `program` (a module of loads/) and its keys
network   a lab

The other keys are those of rounds.py. A load's module has `LINES` (names), `unit(load)`, and
`measured(lab, line, load)`, which returns a value or raises; it may have `lab(multirail, network)`.
`scripts/setup python` installs the libraries, and the package itself, below target/.
"""

import importlib

from multirail_experiments import rounds
from multirail_experiments.host import Cpu
from multirail_experiments.lab import Lab
from multirail_experiments.paths import HOME, PYTHON_ENVIRONMENT

SCRIPTS = HOME / "multirail_experiments/python/scripts"


def measure(plan, multirail, quick, emit):
    """Emits the plan, then a row for each network, load and line."""
    kind = rounds.Kind(
        lines=lambda _network, load: module(load).LINES,
        unit=lambda load: module(load).unit(load),
        lab=lambda multirail, network, load: getattr(module(load), "lab", Lab)(multirail, network),
        run=measured,
    )
    rounds.measure(plan, multirail, quick, emit, kind)


def module(load):
    return importlib.import_module(f"multirail_experiments.python.loads.{load['program']}")


def measured(lab, line, load):
    """The value of one run, and the CPU time of this machine meanwhile."""
    cpu = Cpu()
    try:
        value = module(load).measured(lab, line, load)
    except ValueError as error:
        raise RuntimeError(f"{line} printed no result: {error}") from error
    return {"value": value, **cpu.take()}


def script(name):
    """The command line of a script of scripts/ in the environment with all libraries."""
    python = PYTHON_ENVIRONMENT / "bin/python"
    if not python.exists():
        raise RuntimeError("the libraries are not installed: run `scripts/setup python`")
    return [python, "-B", SCRIPTS / f"{name}.py"]
