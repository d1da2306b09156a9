"""Claims about programs in Python, just inside and just outside of their limits."""

import unittest

from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED
from multirail_experiments.experiment import load_plot
from multirail_experiments.paths import HOME
from multirail_experiments.plan import Plan
from multirail_experiments.python.measure import module

PLOT = load_plot(HOME / "peers/python/plot.py")
WEIGHTS = load_plot(HOME / "peers/weights/plot.py")


def verdicts(plot, network, load, **values):
    rows = [
        {
            "kind": "program",
            "network": network,
            "load": load,
            "line": line.replace("_", "."),
            "unit": "",
            "values": of_line,
            "cpu_was_limit": False,
        }
        for line, of_line in values.items()
    ]
    return [claim.verdict for claim in plot.claims(rows)]


class Claims(unittest.TestCase):
    def test_arrays(self):
        where = PLOT, "100+100, two hosts", "arrays of 1 MiB"
        self.assertEqual(verdicts(*where, Rust=[100], Python=[97]), [REACHED])
        self.assertEqual(verdicts(*where, Rust=[100], Python=[96]), [NOT_REACHED])
        small = PLOT, "100+100, two hosts", "arrays of 8 B"
        self.assertEqual(verdicts(*small, Rust=[100], Python=[1]), [])
        calls = PLOT, "one host", "ping-pong, 8 B"
        self.assertEqual(verdicts(*calls, Rust=[10], Python=[30]), [REACHED])
        self.assertEqual(verdicts(*calls, Rust=[10], Python=[30.1]), [NOT_REACHED])

    def test_collectives(self):
        for network, large in (("100+100, four hosts", 180), ("100+25, four hosts", 115)):
            where = PLOT, network, "all_reduce, 64 MiB"
            self.assertEqual(verdicts(*where, Gloo=[large], multirail=[100]), [REACHED])
            self.assertEqual(verdicts(*where, Gloo=[large - 1], multirail=[100]), [NOT_REACHED])
            small = PLOT, network, "all_reduce, 64 KiB"
            self.assertEqual(verdicts(*small, Gloo=[100], multirail=[100]), [REACHED])
            self.assertEqual(verdicts(*small, Gloo=[99], multirail=[100]), [NOT_REACHED])

    def test_channels_and_pipelines(self):
        found = verdicts(
            PLOT, "one host", "1 MiB", ZeroMQ=[20], Ray=[5], multirail_Channel=[100],
            multirail_Channel_empty=[99], multirail_Pipeline=[100],
        )  # fmt: skip
        self.assertEqual(found, [REACHED, NOT_REACHED, REACHED] * 2)
        where = PLOT, "100+100, four hosts", "a pipeline on Ray"
        self.assertEqual(verdicts(*where, Ray=[20], multirail=[100]), [REACHED])
        self.assertEqual(verdicts(*where, Ray=[20], multirail=[99]), [NOT_REACHED])

    def test_weights(self):
        where = WEIGHTS, "4x4", "256 MiB"
        inside = verdicts(*where, bound=[85], Gloo=[300], Ray=[300], multirail=[100])
        self.assertEqual(inside, [REACHED] * 3)
        outside = verdicts(*where, bound=[84], Gloo=[299], Ray=[299], multirail=[100])
        self.assertEqual(outside, [NOT_REACHED] * 3)
        without = verdicts(*where, bound=[85], multirail=[100])
        self.assertEqual(without, [REACHED, NO_VERDICT, NO_VERDICT])


class Plans(unittest.TestCase):
    def test_programs_exist(self):
        for name in ("python", "weights"):
            plan = Plan.read(HOME / "peers" / name)
            networks = {network["name"] for network in plan.networks}
            for load in plan.table["load"]:
                with self.subTest(load["name"]):
                    self.assertLessEqual(set(load["networks"]), networks)
                    self.assertGreater(len(module(load).LINES), 1)
