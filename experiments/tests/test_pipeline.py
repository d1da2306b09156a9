"""Pipelines: rows of repeats, and what figures 7 to 11 show."""

import unittest

try:
    import matplotlib
except ImportError:
    matplotlib = None


from multirail_experiments.experiment import load_plot
from multirail_experiments.paths import HOME
from multirail_experiments.pipeline import measure as pipeline
from multirail_experiments.pipeline.balance import node as pipeline_balance
from multirail_experiments.plan import Plan


def plot_of(folder):
    return load_plot(HOME / "datacutter" / folder / "plot.py")


def sweep(line, each_us, us_per_kib):
    """Rows of a transport with these times for a chunk; the planner predicts the same."""
    for chunk in (1 << 10, 16 << 10, 256 << 10):
        latency = each_us + us_per_kib * chunk / 1024
        rate = 1e6 / (latency * (16 << 20) / chunk)
        yield {
            "kind": "pipeline",
            "job": "no computation",
            "line": line,
            "measured": "updates",
            "chunk_bytes": chunk,
            "cpu_was_limit": False,
            **{f"{prefix}latency_us": [latency] for prefix in ("", "planned_")},
            **{f"{prefix}updates_per_s": [rate] for prefix in ("", "planned_")},
        }


class Rows(unittest.TestCase):
    def test_repeats_become_lists_by_what_was_measured(self):
        found = {}
        for repeat, rate in enumerate((10.0, 12.0)):
            pipeline.gather(
                found,
                "shm",
                {"measured": "updates", "chunk_bytes": 4096, "updates_per_s": rate},
                0.5 - 0.4 * repeat,
            )
        pipeline.gather(
            found, "shm", {"measured": "updates", "chunk_bytes": 8192, "updates_per_s": 9.0}, 0.5
        )
        self.assertEqual([row["updates_per_s"] for row in found.values()], [[10.0, 12.0], [9.0]])

    def test_every_job_measures_one_thing_and_has_a_name_of_its_own(self):
        for path in HOME.glob("*/*/plan.toml"):
            plan = Plan.read(path.parent)
            if plan.kind == "pipeline":
                jobs = list(pipeline.jobs_of(plan))
                names = [(job["name"], *job.get("lines", [])) for job in jobs]
                self.assertEqual(len(set(names)), len(names), path)
                self.assertTrue(all(len(job["measure"]) == 1 for job in jobs), path)

    def test_a_job_is_varied_over_every_combination_and_named_by_it(self):
        varied = {
            "name": "{a} of {b}",
            "vary": {"a": [1, 2], "b": [3.5]},
            "measure": {"balance": {"window": 4}},
        }
        plain = {"name": "alone", "measure": {"balance": {"window": 4}}}
        jobs = list(pipeline.jobs_of(Plan(HOME, {"job": [varied, plain]})))
        self.assertEqual([job["name"] for job in jobs], ["1 of 3.5", "2 of 3.5", "alone"])
        self.assertEqual(jobs[1]["measure"], {"balance": {"window": 4, "a": 2, "b": 3.5}})
        self.assertEqual(jobs[2]["measure"], plain["measure"])


class Claims(unittest.TestCase):
    @unittest.skipIf(matplotlib is None, "matplotlib: not installed")
    def test_a_transport_twice_as_fast_is_twice_as_soon_with_the_same_chunk(self):
        rows = [*sweep("tcp", 100, 2), *sweep("shm", 50, 1)]
        claims = {claim.text: claim for claim in plot_of("guarantees").claims(rows)}
        same = next(
            claim
            for text, claim in claims.items()
            if "shm with its chunk" in text and "sooner" in text
        )
        self.assertEqual(same.measured, "2.0")
        planners = [claim for claim in claims.values() if claim.where == "planner"]
        self.assertEqual({claim.measured for claim in planners}, {"1.00"})

    def test_the_ideal_of_a_slow_node(self):
        job = {
            "compute_ns_per_byte": 10,
            "measure": {"balance": {"total_bytes": 9_000_000, "factor": 4, "probability": 1}},
        }
        self.assertAlmostEqual(pipeline_balance.row(job, 0.05, [])["ideal_ms"], 40)


if __name__ == "__main__":
    unittest.main()
