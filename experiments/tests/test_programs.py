"""What rows of programs say, and claims just inside and just outside of their limits."""

import json
import unittest

from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED
from multirail_experiments.experiment import load_plot
from multirail_experiments.paths import HOME
from multirail_experiments.programs.measure import LINES, MPTCP, PLAIN, RUN, moved_bytes, row
from multirail_experiments.programs.results import by_network, ratio

PLOT = load_plot(HOME / "peers/programs/plot.py")


def rows(**rates):
    """Rows of one load on the network of two equal rails."""
    names = {"plain": PLAIN, "mptcp": MPTCP, "run": RUN}
    return [
        {
            "kind": "program",
            "network": "100+100",
            "load": "one",
            "line": names[key],
            "mbit_s": mbit_s,
            "cpu_was_limit": False,
        }
        for key, mbit_s in rates.items()
    ]


class Claims(unittest.TestCase):
    def verdicts(self, **rates):
        return [claim.verdict for claim in PLOT.claims(rows(**rates))]

    def test_limits(self):
        inside = self.verdicts(plain=[100, 50], mptcp=[190, 95], run=[190, 95])
        self.assertEqual(inside, [REACHED, REACHED])
        outside = self.verdicts(plain=[100, 50], mptcp=[189, 94], run=[188, 93])
        self.assertEqual(outside, [NOT_REACHED, NOT_REACHED])
        self.assertEqual(self.verdicts(plain=[100], run=[190]), [REACHED, NO_VERDICT])

    def test_ratios_are_taken_round_by_round(self):
        found = by_network(rows(plain=[100, 10, 50], run=[200, 30, 50]))["100+100"]
        self.assertEqual(ratio(found["one", RUN], found["one", PLAIN]), 2)


class Values(unittest.TestCase):
    def test_bytes_are_those_of_the_receiver(self):
        said = json.dumps({"end": {"sum_received": {"bytes": 7}, "sum_sent": {"bytes": 9}}})
        self.assertEqual(moved_bytes(said, ""), 7)

    def test_a_failure_has_its_reason(self):
        with self.assertRaisesRegex(RuntimeError, "unable to connect"):
            moved_bytes(json.dumps({"error": "unable to connect"}), "")
        with self.assertRaisesRegex(RuntimeError, "error: no rails"):
            moved_bytes("", "error: no rails\n")

    def test_a_row_has_all_rounds(self):
        values = [{"mbit_s": rate, "cpu_s": 1, "cpu_idle_share": 0.05} for rate in (1, 2)]
        self.assertEqual(row(values)["mbit_s"], [1, 2])
        self.assertTrue(row(values)["cpu_was_limit"])

    def test_lines_are_those_that_claims_compare(self):
        self.assertEqual(list(LINES), [PLAIN, MPTCP, RUN])


if __name__ == "__main__":
    unittest.main()
