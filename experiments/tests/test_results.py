"""Verdicts just inside and just outside of limits."""

import pathlib
import tempfile
import unittest

from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED, compare
from multirail_experiments.points import best_everywhere, points
from multirail_experiments.results import Results, newest


def row(line, size, values, network="n", **more):
    return {
        "kind": "message",
        "network": network,
        "line": line,
        "message_bytes": size,
        "effective_mbit_s": values,
        **more,
    }


class Verdicts(unittest.TestCase):
    def verdict(self, *arguments, **options):
        return compare("figure", "text", *arguments, **options).verdict

    def test_at_least(self):
        self.assertEqual(self.verdict(1.98, 1.98), REACHED)
        self.assertEqual(self.verdict(1.98, 1.976), REACHED)
        self.assertEqual(self.verdict(1.98, 1.974), NOT_REACHED)

    def test_at_most(self):
        self.assertEqual(self.verdict(12, 12.0, less=True, digits=1), REACHED)
        self.assertEqual(self.verdict(12, 12.1, less=True, digits=1), NOT_REACHED)

    def test_what_was_not_measured_has_no_verdict(self):
        claim = compare("figure", "text", 2.0, None)
        self.assertEqual((claim.verdict, claim.measured, claim.expected), (NO_VERDICT, "-", "2.00"))

    def test_values_are_shown_with_their_unit(self):
        claim = compare("figure", "text", 186.4, 187.25, unit="Mbit/s", digits=1)
        self.assertEqual((claim.expected, claim.measured), ("186.4 Mbit/s", "187.2 Mbit/s"))


class Best(unittest.TestCase):
    def points(self, *rows):
        return list(points(rows))

    def test_three_per_cent_is_the_limit(self):
        (inside,) = self.points(row("adaptive", 1, [97.1]), row("tcp", 1, [100]))
        (outside,) = self.points(row("adaptive", 1, [96.9]), row("tcp", 1, [100]))
        self.assertFalse(inside.is_lost)
        self.assertTrue(outside.is_lost)
        self.assertEqual((outside.best, outside.network, outside.message_bytes), ("tcp", "n", 1))

    def test_the_oracle_is_no_competitor(self):
        (point,) = self.points(
            row("adaptive", 1, [50]), row("oracle", 1, [100]), row("tcp", 1, [40])
        )
        self.assertEqual((point.best, point.share), ("adaptive", 1.0))

    def test_shares_are_taken_repeat_by_repeat(self):
        # The machine was slow for a while, for both lines.
        (point,) = self.points(row("adaptive", 1, [99, 49.5, 99]), row("tcp", 1, [100, 50, 100]))
        self.assertAlmostEqual(point.share, 0.99)

    def test_every_size_of_every_network_is_a_point(self):
        rows = [
            row(line, size, [10], network)
            for network in ("x", "y")
            for size in (1, 2)
            for line in ("adaptive", "tcp")
        ]
        self.assertEqual(
            [(p.network, p.message_bytes) for p in self.points(*rows)],
            [("x", 1), ("x", 2), ("y", 1), ("y", 2)],
        )

    def test_where_the_default_was_not_measured_there_is_no_point(self):
        self.assertEqual(self.points(row("tcp", 1, [10])), [])

    def test_a_line_that_failed_is_no_competitor(self):
        failed = {
            "kind": "message",
            "network": "n",
            "line": "mptcp",
            "message_bytes": 1,
            "reason": "why",
        }
        (point,) = self.points(row("adaptive", 1, [10]), failed)
        self.assertEqual(point.best, "adaptive")

    def test_a_stream_is_no_competitor(self):
        (point,) = self.points(row("adaptive", 1, [10]), row("iperf3", 1, [20], stream_s=3))
        self.assertEqual(point.best, "adaptive")

    def test_the_claim_counts_lost_points(self):
        rows = [
            row("adaptive", 1, [100]),
            row("tcp", 1, [100]),
            row("adaptive", 2, [50]),
            row("tcp", 2, [100]),
        ]
        claim = best_everywhere("figure", rows)
        self.assertEqual((claim.verdict, claim.measured), (NOT_REACHED, "1 of 2 points"))
        self.assertEqual(best_everywhere("figure", rows[:2]).verdict, REACHED)
        self.assertEqual(best_everywhere("figure", []).verdict, NO_VERDICT)


class Sizes(unittest.TestCase):
    def test_the_least_size_holds_from_there_on(self):
        rates = {1: 200, 2: 90, 4: 106, 8: 190}
        found = Results(
            [row("two-ended", size, [rate]) for size, rate in rates.items()]
            + [row("tcp", size, [100]) for size in rates]
        )
        self.assertEqual(found.least_size("two-ended", "tcp", 1.05), 4)
        self.assertIsNone(found.least_size("two-ended", "tcp", 3))


class Newest(unittest.TestCase):
    def test_the_newest_run_is_by_date_and_has_results(self):
        with tempfile.TemporaryDirectory() as folder:
            runs = pathlib.Path(folder) / "runs"
            for date in ("2026-01-02", "2025-12-31", "2026-02-01"):
                (runs / date).mkdir(parents=True)
            self.assertIsNone(newest(folder))
            for date in ("2026-01-02", "2025-12-31"):
                (runs / date / "raw.jsonl").touch()
            self.assertEqual(newest(folder).name, "2026-01-02")


if __name__ == "__main__":
    unittest.main()
