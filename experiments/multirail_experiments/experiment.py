"""One folder below experiments/: its plan, how it is measured, and what its newest run says."""

import dataclasses
import datetime
import importlib.util
import json
import pathlib
import shutil
import tempfile

from multirail_experiments import host, results
from multirail_experiments.background import measure as background
from multirail_experiments.edges import measure as edges
from multirail_experiments.messages import measure as messages
from multirail_experiments.multicast import measure as multicast
from multirail_experiments.paths import HOME
from multirail_experiments.pipeline import measure as pipeline
from multirail_experiments.pipeline import microscope
from multirail_experiments.placement import measure as placement
from multirail_experiments.plan import Plan, matches
from multirail_experiments.programs import measure as programs
from multirail_experiments.python import measure as python

# What `measures` of plan.toml names. Each has `measure(plan, multirail, quick, emit)`.
MEASURERS = {
    "background": background.measure,
    "edges": edges.measure,
    "messages": messages.measure,
    "microscope": microscope.measure,
    "multicast": multicast.measure,
    "pipeline": pipeline.measure,
    "placement": placement.measure,
    "programs": programs.measure,
    "python": python.measure,
}


@dataclasses.dataclass
class Experiment:
    """A plan, and after `draw` the claims and pictures of its newest run."""

    plan: Plan
    # Where results are: the experiment's own folder, or one of the same name elsewhere.
    folder: pathlib.Path
    found: results.Results | None = None
    claims: list = dataclasses.field(default_factory=list)
    pictures: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return self.plan.name

    @property
    def title(self):
        return self.plan.title

    @property
    def paper(self):
        return self.plan.folder.parent.name

    def measure(self, multirail, quick):
        """Measures the plan. Results replace earlier ones only when all are complete."""
        with tempfile.TemporaryDirectory(prefix="multirail-results-") as work:
            raw = pathlib.Path(work) / "raw.jsonl"
            with open(raw, "w") as out:

                def emit(row):
                    print(json.dumps(row), file=out, flush=True)

                emit(host.describe(multirail))
                MEASURERS[self.plan.kind](self.plan, multirail, quick, emit)
            run = self.folder / "runs" / datetime.date.today().isoformat()
            run.mkdir(parents=True, exist_ok=True)
            shutil.move(raw, run / "raw.jsonl")

    def draw(self):
        """Draws pictures and judges claims of the newest run; returns whether there is one."""
        run = results.newest(self.folder)
        if run is None:
            return False
        rows = results.read(run / "raw.jsonl")
        plot = load_plot(self.plan.folder / "plot.py")
        plot.figures(rows, run)
        self.found = results.Results(rows)
        fewest = results.fewest_runs(rows)
        self.claims = [
            claim if claim.runs else claim._replace(runs=fewest) for claim in plot.claims(rows)
        ]
        self.pictures = sorted(run.glob("*.png"))
        return True


def load_plot(path):
    """Imports a folder's plot.py, which has `figures(rows, folder)` and `claims(rows)`."""
    name = f"plot_{path.parent.parent.name}_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find(only, out, networks=None, lines=None):
    """Experiments whose names match one of the globs `only`, by paper and section.

    They have only the networks and lines that match; None: all.
    """
    plans = [Plan.read(path.parent) for path in HOME.glob("*/*/plan.toml")]
    plans.sort(
        key=lambda plan: (plan.folder.parent.name, str(plan.table.get("section", "")), plan.name)
    )
    return [
        Experiment(plan.part(networks, lines), out / plan.name)
        for plan in plans
        if not only or matches(plan.name, only)
    ]
