"""Floors: what each ratio must reach, which runs justify it, and the verdict on a run.

A floor is the least value of at least `RUNS` runs less `MARGIN` of it. The file also has the median
and the largest value, which show how much a ratio varies by itself.
"""

import dataclasses
import math
import pathlib
import statistics
import tomllib

PATH = pathlib.Path(__file__).with_name("floors.toml")
RUNS = 20
MARGIN = 0.10


@dataclasses.dataclass(frozen=True)
class Floor:
    """A ratio's floor, and the values that justify it."""

    floor: float
    runs: int
    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values):
        least, median, most = min(values), statistics.median(values), max(values)
        return cls(floor_of(least), len(values), round(least, 3), round(median, 3), round(most, 3))


def floor_of(least):
    """The floor for the least value of all runs, rounded down to two decimals."""
    return math.floor(round(least, 3) * (1 - MARGIN) * 100 + 1e-9) / 100


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a run says of one ratio. `value` is None if it was not measured, `floor` if it has no
    floor; both are as bad as a value below the floor."""

    name: str
    value: float | None
    floor: Floor | None

    @property
    def is_missed(self):
        return self.value is None or self.floor is None or self.value < self.floor.floor

    def row(self):
        """The cells of a table: name, measured, floor, the usual range, verdict."""
        measured = "-" if self.value is None else f"{self.value:.3f}"
        verdict = "MISSED" if self.is_missed else "ok"
        if self.floor is None:
            return [self.name, measured, "-", "-", verdict]
        usual = f"{self.floor.min:.2f}-{self.floor.max:.2f}"
        return [self.name, measured, f"{self.floor.floor:.2f}", usual, verdict]

    def __str__(self):
        if self.floor is None:
            return f"{self.name} has no floor in {PATH.name}"
        if self.value is None:
            return f"{self.name} was not measured; its floor is {self.floor.floor:.2f}"
        return f"{self.name} is {self.value:.3f}, below its floor of {self.floor.floor:.2f}"


def verdicts(floors, values):
    """A verdict on each ratio: first those with a floor, in the order of the file."""
    names = [*floors, *(name for name in values if name not in floors)]
    return [Verdict(name, values.get(name), floors.get(name)) for name in names]


def better(first, second):
    """The larger value of each ratio of two measurements, either of which may lack some."""
    names = dict.fromkeys([*first, *second])
    return {name: max(run[name] for run in (first, second) if name in run) for name in names}


def table(rows):
    """Rows of text as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows]


def read(path=PATH):
    """Floors by the name of their ratio."""
    with open(path, "rb") as file:
        return {name: Floor(**fields) for name, fields in tomllib.load(file).items()}


def written(floors):
    """The text of a file of floors."""
    width = max(map(len, floors)) + 2
    rows = [
        "# Floors of `make regress`, by the name of the ratio. A floor is the least value of",
        f"# {RUNS} runs less {MARGIN:.0%} of it. CONTRIBUTING.md says how to make this file again.",
    ]
    for name, floor in floors.items():
        fields = dataclasses.asdict(floor).items()
        text = ", ".join(f"{key} = {value}" if key == "runs" else f"{key} = {value:.3f}"
                         for key, value in fields)
        quoted = f'"{name}"'
        rows.append(f"{quoted:{width}} = {{ {text} }}")
    return "\n".join(rows) + "\n"
