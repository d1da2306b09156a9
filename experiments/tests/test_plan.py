"""Schedules depend on plan and seed alone, and every committed plan can be read."""

import copy
import hashlib
import json
import unittest

from multirail_experiments.paths import HOME
from multirail_experiments.plan import Line, Plan, schedule, size_bytes, size_name

RANDOM = {
    "title": "a plan",
    "network": [{"name": "x", "rails": ["100mbit", "100mbit"]}],
    "schedule": {
        "rails": [0, 1],
        "pause_us": [-1, 0, 2000, 5000],
        "rates": ["10mbit", "100mbit"],
        "period_s": 0.5,
        "length_s": 60,
    },
}
# SHA-256 of what RANDOM draws with seed 1, with every version of Python.
DRAWN = "c1320cbc2f69c8d05dadac16e289cd454ee40056e50c78c741ea069d5f60f126"


class Schedules(unittest.TestCase):
    def test_the_same_seed_gives_the_same_bytes(self):
        first, second = (json.dumps(schedule(copy.deepcopy(RANDOM), 1)) for _ in range(2))
        self.assertEqual(first, second)
        self.assertEqual(hashlib.sha256(first.encode()).hexdigest(), DRAWN)

    def test_another_seed_gives_another_schedule(self):
        self.assertNotEqual(schedule(RANDOM, 1), schedule(RANDOM, 2))

    def test_a_schedule_depends_on_nothing_that_it_does_not_draw(self):
        other = {**copy.deepcopy(RANDOM), "sizes": ["1k"], "repeats": 99}
        self.assertEqual(schedule(RANDOM, 1), schedule(other, 1))

    def test_every_rail_draws_in_every_period(self):
        events = schedule(RANDOM, 3)
        self.assertEqual(
            [(event["at_s"], event["rail"]) for event in events],
            [(step * 0.5, rail) for step in range(120) for rail in (0, 1)],
        )
        self.assertEqual({event["pause_us"] for event in events}, {-1, 0, 2000, 5000})
        self.assertEqual({event["rate"] for event in events}, {"10mbit", "100mbit"})

    def test_no_schedule_has_no_events(self):
        self.assertEqual(schedule({"title": "quiet"}, 1), [])

    def test_a_choice_of_one_is_constant(self):
        events = schedule(
            {
                "title": "x",
                "schedule": {"rails": [1], "pause_us": [7], "period_s": 60, "length_s": 60},
            },
            1,
        )
        self.assertEqual(events, [{"at_s": 0.0, "rail": 1, "pause_us": 7}])


class Plans(unittest.TestCase):
    def test_committed_plans_can_be_read(self):
        folders = [path.parent for path in HOME.glob("*/*/plan.toml")]
        self.assertTrue(folders)
        for folder in folders:
            with self.subTest(folder=folder.name):
                plan = Plan.read(folder)
                self.assertTrue(
                    plan.title
                    and (plan.networks or plan.kind in ("edges", "pipeline", "microscope"))
                )
                self.assertEqual(
                    len({network["name"] for network in plan.networks}), len(plan.networks)
                )
                self.assertEqual(len({line.name for line in plan.lines}), len(plan.lines))
                for quick in (False, True):
                    self.assertTrue(
                        all(size > 0 and repeats > 0 for size, repeats in plan.sizes(quick))
                    )
                self.assertTrue((folder / "plot.py").exists())
                self.assertIn("<!-- results:begin -->", (folder / "README.md").read_text())
                if plan.kind != "messages":
                    continue
                rails = [len(network["rails"]) for network in plan.networks]
                self.assertTrue(all(event["rail"] < min(rails) for event in plan.schedule))

    def test_a_part_has_what_matches(self):
        table = {"network": [{"name": "4x4"}, {"name": "4x16"}], "line": [{"name": "mob"}]}
        whole = Plan(HOME / "mob/scale", table)
        part = whole.part(["4x1*"], None)
        self.assertEqual([network["name"] for network in part.networks], ["4x16"])
        self.assertEqual(part.table["line"], table["line"])
        self.assertEqual(whole.part(None, ["adaptive"]).table["line"], [])

    def test_sizes(self):
        self.assertEqual(
            [size_bytes(text) for text in ("1", "64k", "4m", "1g")], [1, 65536, 4 << 20, 1 << 30]
        )
        self.assertEqual(
            [size_name(count) for count in (1, 1500, 65536, 4 << 20, 120 * 10**6)],
            ["1 B", "1500 B", "64 KiB", "4 MiB", "120 MB"],
        )

    def test_lines(self):
        self.assertEqual(Line.of("tcp"), Line("tcp", "tcp"))
        line = Line.of(
            {
                "name": "tcp, second rail",
                "strategy": "tcp",
                "rails": "rail1",
                "options": ["--channels", "1"],
            }
        )
        self.assertEqual(line, Line("tcp, second rail", "tcp", "rail1", ("--channels", "1")))

    def test_few_sizes_have_their_own_repeats(self):
        plan = Plan(
            HOME,
            {
                "title": "x",
                "sizes": ["1k"],
                "repeats": 5,
                "few": {"sizes": ["4m"], "repeats": 2},
                "quick_sizes": ["2k"],
            },
        )
        self.assertEqual(plan.sizes(quick=False), [(1024, 5), (4 << 20, 2)])
        self.assertEqual(plan.sizes(quick=True), [(2048, 1)])


if __name__ == "__main__":
    unittest.main()
