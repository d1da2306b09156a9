"""RESULTS.md and README.md show what was measured."""

import pathlib
import tempfile
import types
import unittest

from multirail_experiments import report
from multirail_experiments.claims import compare
from multirail_experiments.points import best_everywhere
from multirail_experiments.report.page import measured_on, outdated
from multirail_experiments.report.readme import BEGIN, END, section
from multirail_experiments.results import Results

HOST = {
    "kind": "host",
    "date": "2026-01-02",
    "version": "0.1.0",
    "commit": "abc",
    "cores": 2,
    "cpu": "a CPU",
    "memory_gib": 4,
    "kernel": "6",
    "congestion_control": "bbr",
}


def experiment(folder, rates):
    rows = [HOST, {"kind": "plan"}]
    rows += [
        {
            "kind": "message",
            "network": "100+100",
            "line": line,
            "message_bytes": 1024,
            "effective_mbit_s": [rate],
            "cpu_s_per_gib": [1.5],
            "cpu_idle_share": 0.25,
            "cpu_was_limit": False,
        }
        for line, rate in rates.items()
    ]
    rows += [
        {
            "kind": "skipped",
            "network": "100+100",
            "line": "mptcp",
            "reason": "the kernel has no MPTCP",
        }
    ]
    found = Results(rows)
    return types.SimpleNamespace(
        plan=types.SimpleNamespace(folder=folder, name="paper/one"),
        name="paper/one",
        title="One",
        paper="paper",
        folder=folder,
        found=found,
        pictures=[folder / "runs/2026-01-02/figure-01.png"],
        claims=[
            claim._replace(runs=1)
            for claim in (
                compare("figure 1", "a | b", 2.0, 2.5),
                best_everywhere("figure 1", rows),
            )
        ],
    )


class Reports(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_a_plan_that_says_what_a_quick_run_is_was_not_run_so(self):
        told = [
            measured_on(HOST, {"quick": quick}) for quick in ({"lines": ["adaptive"]}, False, True)
        ]
        self.assertEqual(["A quick run" in text for text in told], [False, False, True])

    def results(self, rates):
        report.write_results(self.folder / "RESULTS.md", [experiment(self.folder, rates)])
        return (self.folder / "RESULTS.md").read_text()

    def test_pages_list_claims_and_losses(self):
        lost = section(experiment(self.folder, {"adaptive": 50, "tcp": 100}))
        self.assertIn("| figure 1 | a \\| b | paper | 2.00 | 2.50 | reached (one run) |  |", lost)
        self.assertIn("| 100+100 | 1 KiB | tcp | 100.0 | 50.0 | 0.500 |", lost)

    def test_results_counts_claims_by_source(self):
        text = self.results({"adaptive": 50, "tcp": 100})
        self.assertIn(
            "Of 1 claims of papers that have a verdict, 1 are reached and 0 are not", text
        )
        self.assertIn("2 verdicts rest on one run each", text)
        self.assertIn("| 1 of 1 | 0 of 1 | - | 0 of 1 | 2026-01-02 |", text)

    def test_reasons_are_linked_where_there_are_losses(self):
        (self.folder / "losses.md").write_text("Because.\n")
        for rates, count in (({"adaptive": 50, "tcp": 100}, 1), ({"adaptive": 100, "tcp": 50}, 0)):
            self.assertEqual(self.results(rates).count("losses.md"), count)

    def test_nothing_lost(self):
        text = self.results({"adaptive": 100, "tcp": 50})
        self.assertIn("| 1 of 1 | 1 of 1 | - | 1 of 1 | 2026-01-02 |", text)

    def test_a_run_of_an_unknown_commit_is_not_called_outdated(self):
        self.assertEqual(outdated({"commit": "unknown"}), "")
        self.assertEqual(outdated({"commit": "HEAD-dirty"}), "")

    def test_readme_keeps_what_is_around_the_results(self):
        readme = self.folder / "README.md"
        readme.write_text(f"# One\n\n{BEGIN}\nold\n{END}\n\nafter\n")
        for _ in range(2):
            report.write_readme(experiment(self.folder, {"adaptive": 100, "tcp": 50}))
        text = readme.read_text()
        self.assertTrue(text.startswith("# One\n") and text.endswith("\nafter\n"))
        self.assertNotIn("old", text)
        self.assertEqual(text.count("![figure-01](runs/2026-01-02/figure-01.png)"), 1)
        self.assertIn("| 100+100 | 1 KiB | adaptive | 1.50 | 75% |", text)
        self.assertIn("| 100+100 | mptcp | the kernel has no MPTCP |", text)


if __name__ == "__main__":
    unittest.main()
