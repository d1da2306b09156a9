"""Measures a plan without `measures`: messages between two hosts, and other programs beside them.

All lines of one size are measured before the next size, in an order that rotates with each repeat.
So what is compared was measured within the same minute. Each measurement has a session of its own.
"""

import contextlib
import importlib
import json
import subprocess
import sys
import threading

from multirail_experiments.host import Cpu, is_limit
from multirail_experiments.lab import Lab
from multirail_experiments.messages import load
from multirail_experiments.plan import QUICK_REPEATS, QUICK_SECONDS, SECONDS
from multirail_experiments.stream import measure as stream

# A command that hangs must not stop all experiments.
COMMAND_LIMIT_S = 120
# The rate that `oracle` is told for a rail without a rate.
UNSHAPED_MBIT_S = 1000
# Fields of `multirail bench` that become lists with one value a repeat.
FIELDS = ("effective_mbit_s", "rtt_us_mean", "rtt_us_p99", "control_messages", "cpu_s_per_gib")


def measure(plan, multirail, quick, emit):
    """Emits the plan, then a row for each network, size and line."""
    emit(
        {
            "kind": "plan",
            "name": plan.name,
            "quick": quick,
            **plan.table,
            "schedule_events": plan.schedule,
        }
    )
    for network in plan.networks_measured(quick):
        with (
            Lab(multirail, network) as lab,
            lab.serve(lab.work),
            scheduled(plan, lab, network) as begin,
        ):
            tools = available_tools(plan, lab, network, emit)
            for message_bytes, repeats in plan.sizes(quick):
                emit_all(emit, network, lines_of_size(plan, lab, message_bytes, repeats, begin))
                for tool in tools:
                    emit_all(emit, network, rows_of_tool(tool, lab, message_bytes, repeats, quick))
            emit_all(emit, network, copies(plan, lab, network, quick))
            emit_all(emit, network, stream.rows(plan, lab, network, quick))
            if not quick:
                emit_all(emit, network, alone(plan, lab))


def emit_all(emit, network, rows):
    for row in rows:
        emit({"kind": "message", "network": network["name"], **row})


def cpu_row(idle_shares):
    share = round(sum(idle_shares) / len(idle_shares), 3)
    return {"cpu_idle_share": share, "cpu_was_limit": is_limit(share)}


def bench(lab, line, message_bytes):
    """Measures one line once; returns its row as `multirail bench` prints it."""
    command = [
        lab.multirail,
        "--json",
        "bench",
        lab.address("b", 0),
        "--token-file",
        lab.token_file,
        "--sizes",
        message_bytes,
        "--strategies",
        line.strategy,
        "--repeat",
        1,
        *line.options,
    ]
    rates = lab.rates_mbit_s
    if line.rails:
        command += ["--rails", line.rails]
        rates = [rate for rail, rate in enumerate(rates) if lab.port(rail) in line.rails.split(",")]
    if rates:
        # Without rates, `tcp` would try all rails first.
        command += ["--oracle-rates", ",".join(str(rate or UNSHAPED_MBIT_S) for rate in rates)]
    done = lab.run("a", *command, check=False, stderr=subprocess.PIPE, timeout=COMMAND_LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"multirail bench, {line.name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def lines_of_size(plan, lab, message_bytes, repeats, begin):
    lines = plan.lines
    rows = {
        line.name: {
            "line": line.name,
            "message_bytes": message_bytes,
            **{field: [] for field in FIELDS},
        }
        for line in lines
    }
    idle_shares = {line.name: [] for line in lines}
    for repeat in range(repeats):
        turn = repeat % max(len(lines), 1)
        for line in lines[turn:] + lines[:turn]:
            # Every line sees the same part of the schedule.
            begin(repeat)
            cpu = Cpu()
            measured = bench(lab, line, message_bytes)
            idle_shares[line.name].append(cpu.take()["cpu_idle_share"])
            for field in FIELDS:
                rows[line.name][field].append(round(measured[field], 3))
            rows[line.name]["channels"] = measured["channels"]
    for name, row in rows.items():
        yield {**row, **cpu_row(idle_shares[name])}


def rows_of_tool(tool, lab, message_bytes, repeats, quick):
    cpu = Cpu()
    for row in tool.messages(lab, [message_bytes], repeats, QUICK_SECONDS if quick else SECONDS):
        yield {**row, **cpu_row([cpu.take()["cpu_idle_share"]])}


def available_tools(plan, lab, network, emit):
    """The plan's programs that run here; a row is emitted for each of the others."""
    tools = [importlib.import_module(f"multirail_experiments.peers.{name}") for name in plan.tools]
    found = []
    for tool in tools:
        reason = tool.available(lab)
        if reason is None:
            found.append(tool)
        else:
            emit(
                {"kind": "skipped", "network": network["name"], "line": tool.NAME, "reason": reason}
            )
    return found


def copies(plan, lab, network, quick):
    """`copy_tools`: files from one host to the other, program beside program."""
    tools = plan.table.get("copy_tools")
    if not tools:
        return
    from multirail_experiments.peers import files  # only needed by plans that copy files

    loads = plan.table["quick_loads"] if quick else network["loads"]
    yield from files.rows(
        lab, loads, tools, QUICK_REPEATS if quick else network.get("repeats", QUICK_REPEATS)
    )


def alone(plan, lab):
    """`[alone]`: CPU time of a line while nothing else runs.

    The use of the idle machine is measured before, as the line `nothing`.
    """
    table = plan.table.get("alone")
    if table is None:
        return
    line_of = {line.name: line for line in plan.lines}
    nothing = Cpu()
    threading.Event().wait(2)
    yield {"kind": "alone", "line": "nothing", **nothing.take()}
    for name in table["lines"]:
        message_bytes = table["message_bytes"]
        cpu = Cpu()
        row = bench(lab, line_of[name], message_bytes)
        yield {
            "kind": "alone",
            "line": name,
            "message_bytes": message_bytes,
            "rails": row["rails"],
            **{field: row[field] for field in FIELDS},
            **cpu.take(),
        }


@contextlib.contextmanager
def scheduled(plan, lab, network):
    """Runs the plan's schedule on this network; yields a function that restarts it at a second."""
    if not plan.is_scheduled(network):
        yield lambda offset_s: None
        return
    events, length_s = plan.schedule, plan.table["schedule"]["length_s"]
    with contextlib.ExitStack() as stack:
        begins = []
        if any("rate" in event for event in events):
            begins.append(stack.enter_context(changing_rates(lab, events, length_s)))
        if any("pause_us" in event for event in events):
            begins.append(stack.enter_context(loaded(lab, events, plan.table["schedule"])))

        def begin(offset_s):
            for one in begins:
                one(offset_s % length_s)

        yield begin


@contextlib.contextmanager
def loaded(lab, events, table):
    rails = sorted({event["rail"] for event in events})
    job = {
        "events": events,
        "length_s": table["length_s"],
        "message_bytes": table["message_bytes"],
        "connections": table.get("connections", 1),
        "addresses": {rail: [lab.address("a", rail), lab.address("b", rail)] for rail in rails},
    }
    path = lab.work / "load.json"
    path.write_text(json.dumps(job))
    program = [sys.executable, "-m", load.__spec__.name]
    with (
        lab.start(
            "b", *program, "serve", table["message_bytes"], ready=lab.listens("b", load.PORT)
        ),
        lab.start("a", *program, "exchange", path, ready="ready", stdin=subprocess.PIPE) as client,
    ):

        def begin(offset_s):
            if client.poll() is not None:
                raise RuntimeError("the load has ended before the measurement")
            client.stdin.write(f"{offset_s}\n")
            client.stdin.flush()

        yield begin


@contextlib.contextmanager
def changing_rates(lab, events, length_s):
    clock, ended = load.Clock(length_s), threading.Event()

    def run():
        rates = {}
        while not ended.wait(0.02):
            now_s = clock.now_s()
            for event in [event for event in events if "rate" in event and event["at_s"] <= now_s]:
                rates[event["rail"]] = (event["rate"], rates.get(event["rail"], (None, None))[1])
            for rail, (wanted, is_set) in rates.items():
                if wanted != is_set:
                    lab.set(rail, rate=wanted)
                    rates[rail] = (wanted, wanted)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield clock.begin_at
    finally:
        ended.set()
        thread.join()
