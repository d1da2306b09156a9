"""What rows of programs say, and claims just inside and just outside of their limits."""

import importlib
import json
import tomllib
import unittest

from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED
from multirail_experiments.experiment import load_plot
from multirail_experiments.paths import HOME
from multirail_experiments.programs.lines import LINES, MPTCP, PLAIN, REQUIRE, RUN, prefixed
from multirail_experiments.programs.loads.iperf3 import moved_bytes
from multirail_experiments.programs.loads.redis import table
from multirail_experiments.programs.results import by_network, ratio
from multirail_experiments.rounds import row

PLAN = tomllib.loads((HOME / "peers/programs/plan.toml").read_text())
PLOT = load_plot(HOME / "peers/programs/plot.py")


def rows(network="100+100", load="1 connection", unit="Mbit/s", **values):
    names = {"plain": PLAIN, "mptcp": MPTCP, "run": RUN, "require": REQUIRE}
    return [
        {
            "kind": "program",
            "network": network,
            "load": load,
            "line": names[key],
            "unit": unit,
            "values": of_line,
            "cpu_was_limit": False,
        }
        for key, of_line in values.items()
    ]


def verdicts(*args, **values):
    return [claim.verdict for claim in PLOT.claims(rows(*args, **values))]


class Claims(unittest.TestCase):
    def test_rates(self):
        inside = verdicts(plain=[100, 50], mptcp=[190, 95], run=[190, 95])
        self.assertEqual(inside, [REACHED, REACHED])
        outside = verdicts(plain=[100, 50], mptcp=[189, 94], run=[188, 93])
        self.assertEqual(outside, [NOT_REACHED, NOT_REACHED])
        self.assertEqual(verdicts(plain=[100], run=[190]), [REACHED, NO_VERDICT])

    def test_limits_depend_on_the_load(self):
        self.assertEqual(verdicts("100+100", "git clone", plain=[100], run=[181])[0], REACHED)
        self.assertEqual(verdicts("100+25", "MPI, FT", plain=[100], run=[116])[0], REACHED)
        self.assertEqual(verdicts("100+25", "1 connection", plain=[100], run=[116])[0], NOT_REACHED)

    def test_the_sum_of_wans(self):
        wans = PLOT.WANS, "1 connection, 256 MiB"
        self.assertEqual(verdicts(*wans, plain=[90], run=[180])[-1], REACHED)
        self.assertEqual(verdicts(*wans, plain=[90], run=[178])[-1], NOT_REACHED)

    def test_one_rail_is_judged_with_and_without_require(self):
        found = verdicts(PLOT.UNLIMITED, plain=[100], mptcp=[90], run=[100], require=[40])
        self.assertEqual(found, [REACHED, REACHED, NOT_REACHED])

    def test_times_memory_and_connections(self):
        self.assertEqual(verdicts(load="connect", unit="ms", plain=[1], run=[1.99]), [REACHED])
        self.assertEqual(verdicts(load="connect", unit="ms", plain=[1], run=[2.01]), [NOT_REACHED])
        beside = {"load": "Redis beside", "unit": "ms"}
        self.assertEqual(verdicts(**beside, plain=[10], run=[10]), [REACHED])
        self.assertEqual(verdicts(**beside, plain=[10], run=[10.1]), [NOT_REACHED])
        self.assertEqual(verdicts(unit="connections/s", run=[1000]), [REACHED])
        self.assertEqual(verdicts(unit="connections/s", run=[999]), [NOT_REACHED])
        self.assertEqual(verdicts(unit="KiB", run=[128]), [REACHED])
        self.assertEqual(verdicts(unit="KiB", run=[129]), [NOT_REACHED])

    def test_ratios_are_taken_round_by_round(self):
        found = by_network(rows(plain=[100, 10, 50], run=[200, 30, 50]))["100+100"]
        self.assertEqual(ratio(found["1 connection", RUN], found["1 connection", PLAIN]), 2)

    def test_every_load_of_the_plan_has_a_limit(self):
        for load in PLAN["load"]:
            module = importlib.import_module(
                f"multirail_experiments.programs.loads.{load['program']}"
            )
            for network in load["networks"]:
                found = verdicts(network, load["name"], module.unit(load), plain=[1], run=[1])
                self.assertTrue(found, load["name"])


class Values(unittest.TestCase):
    def test_bytes_are_those_of_the_receiver(self):
        said = json.dumps({"end": {"sum_received": {"bytes": 7}, "sum_sent": {"bytes": 9}}})
        self.assertEqual(moved_bytes(said, ""), 7)

    def test_a_failure_has_its_reason(self):
        with self.assertRaisesRegex(RuntimeError, "unable to connect"):
            moved_bytes(json.dumps({"error": "unable to connect"}), "")
        with self.assertRaisesRegex(RuntimeError, "error: no rails"):
            moved_bytes("", "error: no rails\n")

    def test_redis_names_its_columns(self):
        [of_set] = table('"test","rps","p99_latency_ms"\n"SET","1000.5","0.25"\n')
        self.assertEqual((of_set["rps"], of_set["p99_latency_ms"]), ("1000.5", "0.25"))

    def test_a_row_has_all_rounds(self):
        values = [{"value": rate, "cpu_s": 1, "cpu_idle_share": 0.05} for rate in (1, 2)]
        self.assertEqual(row(values)["values"], [1, 2])
        self.assertTrue(row(values)["cpu_was_limit"])

    def test_lines_are_those_that_claims_compare(self):
        self.assertEqual(list(LINES), [PLAIN, MPTCP, RUN, REQUIRE])

    def test_words_of_a_line_come_before_the_program(self):
        class Lab:
            def on(self, host, *command):
                return [host, *command]

        lab = prefixed(Lab(), a=["run", "--"])
        self.assertEqual(lab.on("a", "ls"), ["a", "run", "--", "ls"])
        self.assertEqual(lab.on("b", "ls"), ["b", "ls"])


if __name__ == "__main__":
    unittest.main()
