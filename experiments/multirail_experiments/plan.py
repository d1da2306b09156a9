"""plan.toml: what an experiment measures. docs/guide/experiments.md has all keys.

The schedule of loads and rates depends on plan and seed alone, so that runs with other versions of
Python see the same one. It is written to the results.
"""

import dataclasses
import fnmatch
import hashlib
import pathlib
import random
import re
import tomllib

K, M = 1 << 10, 1 << 20
DEFAULT_REPEATS, QUICK_REPEATS = 5, 1
# The time for all lines of one size, of programs that are told a time.
SECONDS, QUICK_SECONDS = 5, 2


def size_bytes(text):
    """Parses a size as multirail's command line does: "64k" is 65536."""
    number, unit = re.fullmatch(r"(\d+)([kmg]?)", str(text)).groups()
    return int(number) << {"": 0, "k": 10, "m": 20, "g": 30}[unit]


def size_name(count):
    for scale, unit in ((1 << 30, "GiB"), (M, "MiB"), (K, "KiB")):
        if count >= scale and count % scale == 0:
            return f"{count // scale} {unit}"
    return f"{count // 10**6} MB" if count and count % 10**6 == 0 else f"{count} B"


def matches(name, globs):
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


@dataclasses.dataclass(frozen=True)
class Line:
    """A line that `multirail bench` measures: a strategy, `tcp` or `oracle`, with options."""

    name: str
    strategy: str
    rails: str | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, entry):
        if isinstance(entry, str):
            return cls(entry, entry)
        return cls(
            entry["name"], entry["strategy"], entry.get("rails"), tuple(entry.get("options", ()))
        )


@dataclasses.dataclass(frozen=True)
class Plan:
    folder: pathlib.Path
    table: dict

    @classmethod
    def read(cls, folder):
        return cls(folder, tomllib.loads((folder / "plan.toml").read_text()))

    def part(self, networks, lines):
        """The plan with the networks and lines whose names match one of the globs; None: all."""
        table = dict(self.table)
        for key, globs in (("network", networks), ("line", lines)):
            if globs and key in table:
                table[key] = [one for one in table[key] if matches(one["name"], globs)]
        return Plan(self.folder, table)

    @property
    def name(self):
        """The name as paper/folder."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def title(self):
        return self.table["title"]

    @property
    def kind(self):
        """What is measured: a key of `experiment.MEASURERS`."""
        return self.table.get("measures", "messages")

    @property
    def networks(self):
        """Networks; empty where everything is on one host."""
        return self.table.get("network", [])

    def networks_measured(self, quick):
        names = self.table.get("quick_networks") if quick else None
        return [network for network in self.networks if names is None or network["name"] in names]

    @property
    def lines(self):
        return [Line.of(entry) for entry in self.table.get("lines", [])]

    @property
    def tools(self):
        """Names of modules in peers/."""
        return self.table.get("tools", [])

    def sizes(self, quick):
        """Message sizes in bytes, and how often each is measured."""
        if quick:
            repeats = self.table.get("quick_repeats", QUICK_REPEATS)
            return [(size_bytes(size), repeats) for size in self.table.get("quick_sizes", [])]
        repeats = self.table.get("repeats", DEFAULT_REPEATS)
        few = self.table.get("few", {"sizes": [], "repeats": repeats})
        return [(size_bytes(size), repeats) for size in self.table.get("sizes", [])] + [
            (size_bytes(size), few["repeats"]) for size in few["sizes"]
        ]

    @property
    def schedule(self):
        return schedule(self.table, self.table["seed"])

    def is_scheduled(self, network):
        """Whether the schedule applies to this network."""
        table = self.table.get("schedule")
        return table is not None and network["name"] in table.get(
            "networks", [n["name"] for n in self.networks]
        )


def schedule(plan, seed):
    """What changes while an experiment runs, as a list of events in order of time.

    Every `period_s` seconds, each of `rails` draws anew, for `length_s` seconds; then the schedule
    repeats. `pause_us` are pauses between the messages of a load (-1: no load), `rates` are rates
    of the rail itself. A list of one value is constant.
    """
    table = plan.get("schedule")
    if table is None:
        return []
    events = []
    # The seed includes the title, so that a change of one plan does not move the draws of another.
    # Python promises stable results for `random()` only.
    draw = random.Random(
        int.from_bytes(hashlib.sha256(f"{seed} {plan['title']}".encode()).digest()[:8])
    )
    for step in range(round(table["length_s"] / table["period_s"])):
        for rail in table["rails"]:
            event = {"at_s": round(step * table["period_s"], 6), "rail": rail}
            for key, values in (("pause_us", table.get("pause_us")), ("rate", table.get("rates"))):
                if values is not None:
                    event[key] = values[int(draw.random() * len(values))]
            events.append(event)
    return events
