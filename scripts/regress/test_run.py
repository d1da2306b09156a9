"""A whole run, with measurements that are given."""

import contextlib
import io
import unittest

import run
from floors import Floor
from lab import Failed
from measure import Skipped

FLOOR = Floor(floor=0.9, runs=20, min=1.0, median=1.1, max=1.2)


def group(*values):
    """Gives one value after the other; an exception is raised."""
    left = list(values)

    def measure(_multirail):
        value = left.pop(0)
        if isinstance(value, Exception):
            raise value
        return {"ratio": [value]}

    return measure


class Run(unittest.TestCase):
    def run_groups(self, **groups):
        """What a run of groups prints on stdout; each has one ratio with the floor 0.9."""
        known = {f"{name}/ratio": FLOOR for name in groups}
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            run.run(groups, "multirail", known)
        return out.getvalue()

    def test_a_run_at_its_floors_passes(self):
        self.assertIn("2 of 2 ratios", self.run_groups(one=group(0.9), other=group(1.5)))

    def test_a_ratio_just_below_its_floor_twice_fails_with_number_and_floor(self):
        with self.assertRaises(SystemExit) as failed:
            self.run_groups(one=group(0.8, 0.899), other=group(1.5))
        self.assertEqual(str(failed.exception),
                         "regress: one/ratio is 0.899, below its floor of 0.90")

    def test_a_ratio_below_its_floor_once_passes(self):
        self.assertIn("1 of 1 ratios", self.run_groups(one=group(0.5, 0.9)))

    def test_a_group_that_cannot_be_measured_fails(self):
        with self.assertRaises(SystemExit) as failed:
            self.run_groups(one=group(Failed("no answer"), Failed("no answer")))
        self.assertEqual(str(failed.exception),
                         "regress: one/ratio was not measured; its floor is 0.90")

    def test_a_group_that_this_machine_cannot_run_is_skipped_with_the_reason(self):
        printed = self.run_groups(one=group(Skipped("no BPF")), other=group(1.0))
        self.assertIn("skipped: one (no BPF)", printed)
        self.assertIn("1 of 1 ratios", printed)
