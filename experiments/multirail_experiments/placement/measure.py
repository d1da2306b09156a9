"""Measures a plan with `measures = "placement"`: traffic between hosts with several ports.

All lines have the same traffic. Keys of a plan:

    [[network]]   name, hosts, ports, rate or port_rates (neither: as fast as the machine), queue,
                  sysctl, congestion; optional: `lines` measured there, and tables as below that
                  differ there
    [[line]]      name, program (a module of programs/) and its keys: policy, threshold, …;
                  optional: sysctl, congestion
    repeats       how often everything is measured, in an order of lines that rotates
    [patterns], [latency], [exchange], [backlog]
                  what is measured: see the modules of traffic/
    [quick]       networks, lines, and tables of the above of a quick run

Every line of every repeat has a lab of its own, so that no learned address and no measured path of
another line is left. A program is a module with

    available(multirail, line)   None, or why it cannot run here
    FLAGS, SYSCTL                more options of `multirail lab up`
    OPTIONS                      options of the load generator
    prepared(net, line)          a context manager: hosts use all their ports in its block
    address(net, host)           the address at which a host is reached then
"""

import importlib
import subprocess
import sys
import time

from multirail_experiments.host import Cpu, is_limit
from multirail_experiments.placement.network import Ports
from multirail_experiments.placement.traffic import backlog, exchange, latency, streams

MEASURED = {"patterns": streams, "latency": latency, "exchange": exchange, "backlog": backlog}
# How long the idle share of processors is taken before each line.
QUIET_S = 0.3
# Fields that tell rows of one line apart.
POINT = ("pattern", "streams")


def measure(plan, multirail, quick, emit):
    table = chosen(plan.table, quick)
    emit({"kind": "plan", "name": plan.name, **table, "quick": quick})
    for network in table["network"]:
        found = {}
        lines = available_lines(multirail, network, table["line"], emit)
        repeats = 1 if quick else network.get("repeats", table.get("repeats", 1))
        for repeat in range(repeats):
            turn = repeat % max(len(lines), 1)
            for line in lines[turn:] + lines[:turn]:
                for row in rows_of_line(plan, table, multirail, network, line, quick):
                    gather(found, network, line, row, emit)
        for row in found.values():
            emit(row)


def chosen(table, quick):
    """The plan's table, or the part that a quick run measures."""
    if not quick:
        return table
    few = table.get("quick", {})
    found = {**table, **{key: {**table.get(key, {}), **few[key]} for key in MEASURED if key in few}}
    for key, names in (("network", "networks"), ("line", "lines")):
        found[key] = [row for row in table[key] if names not in few or row["name"] in few[names]]
    return found


def program_of(line):
    return importlib.import_module(f"multirail_experiments.placement.programs.{line['program']}")


def available_lines(multirail, network, lines, emit):
    found = []
    for line in lines:
        if line["name"] not in network.get("lines", [line["name"]]):
            continue
        reason = program_of(line).available(multirail, line)
        if reason is None:
            found.append(line)
        else:
            emit(
                {
                    "kind": "skipped",
                    "network": network["name"],
                    "line": line["name"],
                    "reason": reason,
                }
            )
    return found


def rows_of_line(plan, table, multirail, network, line, quick):
    """Rows of one lab; a row with a reason if something failed."""
    program, before = program_of(line), idle_share()
    try:
        with (
            Ports(
                multirail,
                network,
                program.FLAGS,
                {**program.SYSCTL, **line.get("sysctl", {})},
                line.get("congestion"),
            ) as net,
            program.prepared(net, line),
            net.loads(*program.OPTIONS) as loads,
        ):
            loads.address = lambda host: program.address(net, host)
            for key, module in MEASURED.items():
                if key not in table and key not in network:
                    continue
                wanted = {
                    **table.get(key, {}),
                    **({} if quick and key in table.get("quick", {}) else network.get(key, {})),
                }
                for row in module.rows(net, loads, wanted, quick):
                    tell(plan, network, line, row)
                    yield {**row, "idle_before": before}
    except (RuntimeError, OSError, TimeoutError, ValueError, subprocess.SubprocessError) as error:
        print(
            f"{plan.name}: {network['name']}, {line['name']}: {error}", file=sys.stderr, flush=True
        )
        yield {"reason": str(error)}


def idle_share():
    """The idle share of processors before a measurement.

    A low share means that other programs are running.
    """
    cpu = Cpu()
    time.sleep(QUIET_S)
    return cpu.take()["cpu_idle_share"]


def tell(plan, network, line, row):
    shown = ", ".join(
        f"{key} {value}"
        for key, value in row.items()
        if isinstance(value, (int, float, str)) and key not in POINT
    )
    print(
        f"{plan.name}: {network['name']}, {line['name']}, {row['pattern']}, "
        f"{row['streams']}: {shown}",
        file=sys.stderr,
        flush=True,
    )


def gather(found, network, line, row, emit):
    """Adds a row to lists with one value a repeat."""
    if "reason" in row:
        emit(
            {
                "kind": "skipped",
                "network": network["name"],
                "line": line["name"],
                "reason": row["reason"],
            }
        )
        return
    key = line["name"], *(row[part] for part in POINT)
    kept = found.setdefault(
        key,
        {
            "kind": "placement",
            "network": network["name"],
            "line": line["name"],
            **{part: row[part] for part in POINT},
            "cpu_was_limit": False,
        },
    )
    for field, value in row.items():
        if field not in POINT:
            kept.setdefault(field, []).append(value)
    kept["cpu_was_limit"] |= is_limit(row["cpu_idle_share"])
