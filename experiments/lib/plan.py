"""plan.toml: what an experiment measures. docs/guide/experiments.md has all keys.

The schedule of loads and rates is a pure function of plan and seed, so that two runs, years and versions of Python apart, see the
same ones. It is written beside the results.
"""

import dataclasses
import hashlib
import pathlib
import random
import re
import tomllib

K, M = 1 << 10, 1 << 20
DEFAULT_REPEATS, QUICK_REPEATS = 5, 1
# What all lines of one size are given, when they are measured by tools that want a time.
SECONDS, QUICK_SECONDS = 5, 2


def size_bytes(text):
    """As on multirail's command line: "64k" is 65536."""
    number, unit = re.fullmatch(r"(\d+)([kmg]?)", str(text)).groups()
    return int(number) << {"": 0, "k": 10, "m": 20, "g": 30}[unit]


def size_name(count):
    for scale, unit in ((1 << 30, "GiB"), (M, "MiB"), (K, "KiB")):
        if count >= scale and count % scale == 0:
            return f"{count // scale} {unit}"
    return f"{count // 10**6} MB" if count and count % 10**6 == 0 else f"{count} B"


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a plot that `multirail bench` measures: a strategy, `tcp` or `oracle`, on some rails, with some options."""

    name: str
    strategy: str
    rails: str | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, entry):
        if isinstance(entry, str):
            return cls(entry, entry)
        return cls(entry["name"], entry["strategy"], entry.get("rails"), tuple(entry.get("options", ())))


@dataclasses.dataclass(frozen=True)
class Plan:
    folder: pathlib.Path
    table: dict

    @classmethod
    def read(cls, folder):
        return cls(folder, tomllib.loads((folder / "plan.toml").read_text()))

    @property
    def name(self):
        """paper/folder"""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def title(self):
        return self.table["title"]

    @property
    def is_multicast(self):
        """Whether multicast.py measures it: one to many, on clusters of hosts."""
        return self.table.get("measures") == "multicast"

    @property
    def is_placement(self):
        """Whether placement.py measures it: hosts with several ports."""
        return self.table.get("measures") == "placement"

    @property
    def is_edges(self):
        """Whether edges.py measures it: two processes of one host."""
        return self.table.get("measures") == "edges"

    @property
    def is_pipeline(self):
        """Whether pipeline.py measures it: filters on hosts that are processes."""
        return self.table.get("measures") == "pipeline"

    @property
    def is_microscope(self):
        """Whether microscope.py measures it: tours over a slide."""
        return self.table.get("measures") == "microscope"

    @property
    def networks(self):
        """None where all is on one host."""
        return self.table.get("network", [])

    def networks_measured(self, quick):
        names = self.table.get("quick_networks") if quick else None
        return [network for network in self.networks if names is None or network["name"] in names]

    @property
    def lines(self):
        return [Line.of(entry) for entry in self.table.get("lines", [])]

    @property
    def tools(self):
        """Names of modules in lib/tools."""
        return self.table.get("tools", [])

    def sizes(self, quick):
        """Message sizes in bytes, and how often each is measured."""
        if quick:
            repeats = self.table.get("quick_repeats", QUICK_REPEATS)
            return [(size_bytes(size), repeats) for size in self.table.get("quick_sizes", [])]
        repeats = self.table.get("repeats", DEFAULT_REPEATS)
        few = self.table.get("few", {"sizes": [], "repeats": repeats})
        return [(size_bytes(size), repeats) for size in self.table.get("sizes", [])] + \
            [(size_bytes(size), few["repeats"]) for size in few["sizes"]]

    @property
    def schedule(self):
        return schedule(self.table, self.table["seed"])

    def is_scheduled(self, network):
        """Whether the schedule runs on this network."""
        table = self.table.get("schedule")
        return table is not None and network["name"] in table.get("networks", [n["name"] for n in self.networks])


def schedule(plan, seed):
    """What changes while an experiment runs: a list of events in the order of time.

    `[schedule]` says every how many seconds (`period_s`) each of `rails` draws anew for `length_s` in all, after which it begins
    again: `pause_us` are pauses between the messages of a load (-1: no load), `rates` are rates of the rail itself. A list of
    one makes it constant.
    """
    table = plan.get("schedule")
    if table is None:
        return []
    events = []
    # By name, so that one table's change does not move what another draws; only random() is promised to stay as it is.
    draw = random.Random(int.from_bytes(hashlib.sha256(f"{seed} {plan['title']}".encode()).digest()[:8]))
    for step in range(round(table["length_s"] / table["period_s"])):
        for rail in table["rails"]:
            event = {"at_s": round(step * table["period_s"], 6), "rail": rail}
            for key, values in (("pause_us", table.get("pause_us")), ("rate", table.get("rates"))):
                if values is not None:
                    event[key] = values[int(draw.random() * len(values))]
            events.append(event)
    return events
