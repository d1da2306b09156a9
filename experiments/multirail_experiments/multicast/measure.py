"""Measures a plan with `measures = "multicast"`: one file to all hosts of a network.

All methods see the same scenario. Keys of a plan:

    [[network]]   name, clusters = { a = 4, … }; optional: file_mb, rate_scale, delay, queue,
                  access, repeats, is_sparse (the file is a hole), link_mbit_s (scenario `equal`),
                  and scenarios or sizes, where they are not those of the plan.
                  With `rails`, hosts have several ports, see rails.py
    [[line]]      name, program (a module of programs/) and its keys: method, is_tuned,
                  settings, …; optional: networks and scenarios, `largest` message, most repeats
    scenarios     see scenario.py; or `sizes`: messages in the scenario `fast`
    clock         "command": the time includes what the command does before data moves (`before_s`)
    repeats       how often each line is measured; the order of lines rotates. Messages of
                  `once_from` bytes or more are measured once
    [quick]       networks, scenarios, lines, sizes and file_mb of a quick run

A program is a module with

    available(net)       None, or why it cannot run here
    session(net, line)   a context manager; its value has broadcast(file, begin, limit_s, point)

`broadcast` calls `begin()` when the broadcast begins, which returns `time.monotonic()`. It returns
a dict with `seconds` until the last host is complete, `setup_s` before the begin, and `received`,
the files to compare with the source, or pairs of a source and such a file. `before_s` is the part
of `setup_s` that a user's command takes: hashing the file, or starting the ranks.
"""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import time

from multirail_experiments.host import Cpu, turn
from multirail_experiments.multicast import scenario
from multirail_experiments.multicast.rails import network_of
from multirail_experiments.plan import DEFAULT_REPEATS, size_bytes

MB = 10**6
BLOCK = 1 << 20
# Above this share of busy processors the CPU was the limit, not the network.
BUSY_SHARE = 0.90
# A broadcast may take this multiple of its bound, and these seconds in addition.
LIMIT_BOUNDS, LIMIT_S = 80, 30
# The limit of a broadcast in a quick run.
QUICK_LIMIT_S = 15
# Fields with one value a repeat.
FIELDS = (
    "seconds",
    "mb_s",
    "setup_s",
    "before_s",
    "command_setup_s",
    "each_s",
    "wan_copies",
    "cpu_busy_share",
    "cpu_s",
    "peers_cpu_s",
    "memory_peak_mib",
    "died",
    "returned",
    "returned_s",
    "resumed_bytes",
)


def measure(plan, multirail, quick, emit):
    table = chosen(plan.table, quick)
    emit({"kind": "plan", "name": plan.name, **table, "quick": quick})
    for network in table["network"]:
        rates = events_on(network, first_scenario(table))[0][1]
        with network_of(multirail, network, rates) as net:
            lines = available_lines(net, network, table["line"], emit)
            for size in values_of(table, network, "sizes"):
                for row in rows_of_point(plan, table, net, lines, "fast", size_bytes(size), quick):
                    emit(row)
            for name in values_of(table, network, "scenarios"):
                for row in rows_of_point(plan, table, net, lines, name, None, quick):
                    emit(row)


def first_scenario(table):
    return "fast" if "sizes" in table else table["scenarios"][0]


def events_on(network, name, **options):
    found = scenario.events(
        name,
        rate_scale=network.get("rate_scale", 1.0),
        link_mbit_s=network.get("link_mbit_s"),
        **options,
    )
    return scenario.only(found, network["clusters"])


def chosen(table, quick):
    """The plan's table, or the part that a quick run measures."""
    if not quick:
        return table
    few = table.get("quick", {})
    own = {key for key in ("scenarios", "sizes") if key in few}
    found = {**table, **{key: few[key] for key in ("scenarios", "sizes") if key in few}}
    for key, names in (("network", "networks"), ("line", "lines")):
        found[key] = [row for row in table[key] if names not in few or row["name"] in few[names]]
    if "file_mb" in few:
        found["network"] = [{**network, "file_mb": few["file_mb"]} for network in found["network"]]
    found["network"] = [
        {key: value for key, value in network.items() if key not in own}
        for network in found["network"]
    ]
    return found


def values_of(table, network, key):
    """The scenarios or sizes of a network: its own, or those of the plan."""
    return network.get(key, table.get(key, []))


def program_of(line):
    return importlib.import_module(f"multirail_experiments.multicast.programs.{line['program']}")


def available_lines(net, network, lines, emit):
    found = []
    for line in lines:
        if network["name"] not in line.get("networks", [network["name"]]):
            continue
        reason = program_of(line).available(net)
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


class Point:
    """A scenario or a message size on a network, with its events and its bound by file size."""

    def __init__(self, net, name, size, seed):
        self.net, self.name, self.seed = net, name, seed
        self.network = net.network
        self.is_message = size is not None
        # Whether the time includes what the command does before data moves.
        self.is_of_command = False
        self.size_bytes = size or round(self.network["file_mb"] * MB)
        self.rate_scale = self.network.get("rate_scale", 1.0)
        self._files, self._bounds = {}, {}

    def events(self, size):
        """The scenario's changes; they take longer with a larger file."""
        return events_on(
            self.network,
            self.name,
            seed=self.seed,
            times=scenario.time_scale(size / MB, self.rate_scale),
        )

    def bound_s(self, size):
        """The bound; None if the network has none."""
        if size not in self._bounds:
            self._bounds[size] = self.net.bound_s(self.events(size), size)
        return self._bounds[size]

    def file(self, size, root=""):
        """The source of a size; each root has one of its own."""
        path = self.net.work / "source" / "-".join(filter(None, ("file", str(size), root)))
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            with open(path, "wb") as file:
                if self.network.get("is_sparse"):
                    file.truncate(size)
                    return path
                for start in range(0, size, BLOCK):
                    file.write(os.urandom(min(BLOCK, size - start)))
        return path


def rows_of_point(plan, table, net, lines, name, size, quick):
    lines = [
        line
        for line in lines
        if name in line.get("scenarios", [name])
        and (size or 0) <= size_bytes(line.get("largest", size or 0))
    ]
    point = Point(net, name, size, table.get("seed", 1))
    point.is_of_command = table.get("clock") == "command"
    repeats = net.network.get("repeats", table.get("repeats", DEFAULT_REPEATS))
    if quick or (size is not None and size >= size_bytes(table.get("once_from", size + 1))):
        repeats = 1
    found = {
        line["name"]: {"line": line["name"], **{field: [] for field in FIELDS}} for line in lines
    }
    failed = {}
    for repeat in range(repeats):
        first = repeat % max(len(lines), 1)
        for line in lines[first:] + lines[:first]:
            if line["name"] in failed or repeat >= line.get("repeats", repeats):
                continue
            try:
                with turn():
                    one = broadcast(net, line, point, QUICK_LIMIT_S if quick else None)
            except (
                RuntimeError,
                OSError,
                TimeoutError,
                ValueError,
                subprocess.SubprocessError,
            ) as error:
                failed[line["name"]] = str(error)
                print(
                    f"{plan.name}: {net.network['name']}, {name}, {line['name']}: {error}",
                    file=sys.stderr,
                    flush=True,
                )
                continue
            row = found[line["name"]]
            for field in FIELDS:
                if one.get(field) is not None:
                    row[field].append(
                        round(one[field], 4) if isinstance(one[field], float) else one[field]
                    )
            row |= {key: value for key, value in one.items() if key not in FIELDS}
            share = (
                f"{one['mb_s'] / one['bound_mb_s']:.2f} of the bound, " if one["bound_mb_s"] else ""
            )
            print(
                f"{plan.name}: {net.network['name']}, {name}, {line['name']}: "
                f"{one['mb_s']:.3f} MB/s, {share}"
                f"{one['wan_copies']:.2f} copies, busy {one['cpu_busy_share']:.0%}",
                file=sys.stderr,
                flush=True,
            )
    where = {"network": net.network["name"], "scenario": name, "hosts": len(net.hosts)}
    if size is not None:
        where["message_bytes"] = size
    for line, row in found.items():
        if line in failed:
            yield {"kind": "skipped", **where, "line": line, "reason": failed[line]}
        elif row["seconds"]:
            busy = max(row["cpu_busy_share"])
            yield {
                "kind": "broadcast",
                **where,
                **{key: value for key, value in row.items() if value != []},
                "cpu_was_limit": busy > BUSY_SHARE,
            }


def broadcast(net, line, point, most_s=None):
    """Runs one broadcast of one line, for at most `most_s` or a multiple of its bound."""
    size = point.size_bytes
    events, bound_s = point.events(size), point.bound_s(size)
    file, limit_s = point.file(size), most_s or LIMIT_BOUNDS * (bound_s or 0) + LIMIT_S
    if events[0][1]:
        net.set_rates(events[0][1])
    cpu = Cpu()
    with (
        received_nothing(net),
        net.playing(events) as play,
        program_of(line).session(net, line) as session,
    ):
        before = {}

        def begin():
            before.update(net.links())
            cpu.reset()
            play()
            return time.monotonic()

        one = session.broadcast(file, begin, limit_s, point)
        if point.is_of_command:
            one["seconds"] += one.get("before_s", 0.0)
        used, after = cpu.take(), net.links()
        received = one.pop("received")
        for found in received:
            source, path = found if isinstance(found, tuple) else (file, found)
            if not is_equal(source, path):
                raise RuntimeError(f"{path.parent.name} has something else than the root sent")
    moved = {f"{way[0]}>{way[1]}": after[way]["bytes"] - before[way]["bytes"] for way in after}
    dropped = sum(after[way]["drops"] - before[way]["drops"] for way in after)
    bound_mb_s = size / bound_s / MB if bound_s else None
    rate_mb_s = size / one["seconds"] / MB
    return {
        "mb_s": rate_mb_s,
        "bound_mb_s": bound_mb_s and round(bound_mb_s, 4),
        "file_bytes": size,
        "wan_copies": sum(moved.values()) / size,
        "wan_bytes": moved,
        "wan_drops": dropped,
        "cpu_busy_share": 1 - used["cpu_idle_share"],
        "cpu_s": used["cpu_s"],
        # A simulation has no frames and no processes of its own.
        **one,
    }


@contextlib.contextmanager
def received_nothing(net):
    """Removes what hosts received after the block, so that its memory is free again."""
    try:
        yield
    finally:
        for host in net.hosts:
            shutil.rmtree(net.folder(host))


def is_equal(one, other):
    with open(one, "rb") as first, contextlib.ExitStack() as stack:
        try:
            second = stack.enter_context(open(other, "rb"))
        except FileNotFoundError:
            return False
        while True:
            block = first.read(BLOCK)
            if block != second.read(BLOCK):
                return False
            if not block:
                return True
