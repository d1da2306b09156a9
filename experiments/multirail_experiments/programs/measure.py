"""Programs as they are, by `mptcpize run` and by `multirail run`, between host a and host b.

load      `program` (a module of loads/) and its keys, and `lines` if not those of the network
network   a lab of two hosts, and `lines` if not the usual ones

The other keys are those of rounds.py.
"""

import importlib

from multirail_experiments import rounds
from multirail_experiments.host import Cpu
from multirail_experiments.lab import Lab
from multirail_experiments.programs.lines import LINES, MPTCP, PLAIN, RUN

USUAL_LINES = [PLAIN, MPTCP, RUN]


def measure(plan, multirail, quick, emit):
    """Emits the plan, then a row for each network, load and line."""
    kind = rounds.Kind(
        lines=lambda network, load: load.get("lines", network.get("lines", USUAL_LINES)),
        unit=lambda load: module(load).unit(load),
        lab=lambda multirail, network, _load: Lab(multirail, network),
        run=lambda lab, line, load: measured(lab, LINES[line], load),
    )
    rounds.measure(plan, multirail, quick, emit, kind)


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
