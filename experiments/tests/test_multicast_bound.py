"""The bound of multicasts, and the scenarios that it is computed from."""

import hashlib
import itertools
import json
import random
import unittest

from multirail_experiments.multicast import bound, scenario

MB = 10**6
# SHA-256 of what seed 1 draws for `mayhem`, with every version of Python.
DRAWN = "fe0e3e560b38f9c7ebd5bd642f5cb688f4c7ffdf55441dc5695d35591846fdcd"


def rate_mb_s(name, size_mb=120, **options):
    found = scenario.directed(scenario.events(name, **options))
    return size_mb / bound.bound_s(found, scenario.ROOT, size_mb * MB)


def least_cut(rates, source, sink):
    """The least cut, found by trying every cut; it equals the largest flow."""
    nodes = sorted({node for pair in rates for node in pair} - {source, sink})
    return min(
        sum(rate for (tail, head), rate in rates.items() if tail in side and head not in side)
        for count in range(len(nodes) + 1)
        for inner in itertools.combinations(nodes, count)
        for side in [{source, *inner}]
    )


class Flows(unittest.TestCase):
    def test_the_largest_flow_is_the_least_cut(self):
        seed = 7
        draw = random.Random(seed)
        for case in range(200):
            nodes = range(draw.randint(2, 6))
            rates = {
                pair: draw.randint(0, 9)
                for pair in itertools.permutations(nodes, 2)
                if draw.random() < 0.7
            }
            rates.setdefault((0, 1), draw.randint(0, 9))
            graph = bound.Flow()
            for (tail, head), rate in rates.items():
                graph.edge(tail, head, rate)
            self.assertEqual(
                graph.largest(0, 1), least_cut(rates, 0, 1), f"seed {seed}, case {case}: {rates}"
            )


class Bounds(unittest.TestCase):
    def test_static_scenarios(self):
        self.assertAlmostEqual(rate_mb_s("fast"), 15.0, delta=0.01)
        self.assertAlmostEqual(rate_mb_s("slow"), 9.8, delta=0.01)

    def test_scales_with_the_rates(self):
        self.assertAlmostEqual(rate_mb_s("slow", rate_scale=0.25), 2.45, delta=0.001)

    def test_a_change_counts_from_its_time_on(self):
        # The first 60 MB take 4 s at 15 MB/s. Before the change A can send ahead to B and D what C
        # and D need; no cluster may receive more than its links carry.
        least = bound.bound_s(scenario.directed(scenario.events("fast-slow")), "a", 120 * MB)
        self.assertGreater(least, 120 / 15)
        self.assertLess(least, 4 + (120 - 60) / 9.8 + 0.01)
        # A change after the end changes nothing.
        self.assertAlmostEqual(rate_mb_s("fast-slow", times=3), 15.0, delta=0.01)
        self.assertAlmostEqual(rate_mb_s("slow-fast", times=4), 9.8, delta=0.01)

    def test_data_can_wait_in_a_cluster(self):
        # Data moves from a to b for a second, then from b to c for a second.
        events = [(0, {("a", "b"): MB, ("b", "c"): 0}), (1, {("a", "b"): 0, ("b", "c"): MB})]
        self.assertEqual(bound.deliverable(events, 2, "a", "c"), MB)
        self.assertEqual(
            bound.deliverable(list(reversed([(1, events[0][1]), (0, events[1][1])])), 2, "a", "c"),
            0,
        )
        self.assertAlmostEqual(bound.least_s(events, "a", "c", MB // 2), 1.5, places=3)

    def test_access_limits_what_a_cluster_sends_and_takes(self):
        events = [(0, dict.fromkeys(itertools.permutations("abcd", 2), 100 * MB))]
        for hosts, rate in ((1, 12.5), (4, 50.0)):
            access = dict.fromkeys("abcd", hosts * 12.5 * MB)
            self.assertAlmostEqual(
                100 / bound.bound_s(events, "a", 100 * MB, access), rate, delta=0.05
            )

    def test_who_cannot_be_reached_is_an_error(self):
        with self.assertRaises(ValueError):
            bound.bound_s([(0, {("a", "b"): 0, ("b", "a"): 5})], "a", 1)

    def test_never_above_nominal(self):
        self.assertLess(rate_mb_s("mayhem"), 15.0)
        self.assertGreater(rate_mb_s("mayhem"), 1.5)


class Scenarios(unittest.TestCase):
    def test_the_same_seed_gives_the_same(self):
        found = [
            json.dumps(
                [
                    [at_s, scenario.link_words(rates)]
                    for at_s, rates in scenario.events("mayhem", seed=seed)
                ]
            )
            for seed in (1, 1, 2)
        ]
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])
        self.assertEqual(hashlib.sha256(found[0].encode()).hexdigest(), DRAWN)

    def test_mayhem_stays_within_its_shares(self):
        events = scenario.events("mayhem")
        self.assertEqual(len(events), 1001)
        for pair, rate_mb in scenario.LINKS_MB_S.items():
            shares = [rates[pair] / scenario.kbit_s(rate_mb) for _, rates in events[1:]]
            self.assertGreaterEqual(min(shares), 0.0999)
            self.assertLess(min(shares), 0.15)
            self.assertGreater(max(shares), 0.95)
            self.assertLessEqual(max(shares), 1.0)

    def test_a_change_is_of_two_links(self):
        (_, before), (at_s, change) = scenario.events(
            "fast-slow", times=scenario.time_scale(120, 0.25)
        )
        self.assertEqual((at_s, len(before)), (16.0, 6))
        self.assertEqual(set(change), set(scenario.SLOW_MB_S))

    def test_a_play_file_says_the_same(self):
        for name in scenario.SCENARIOS:
            events = scenario.events(name)
            text = scenario.play_file(events)
            if text is None:
                self.assertIn(name, ("fast", "slow"))
            else:
                self.assertEqual(scenario.read_play_file(text), events[1:])

    def test_unknown_names_are_refused(self):
        with self.assertRaises(ValueError):
            scenario.events("calm")


if __name__ == "__main__":
    unittest.main()
