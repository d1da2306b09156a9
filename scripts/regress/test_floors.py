"""The rule that makes floors, and the file of floors."""

import pathlib
import tempfile
import unittest

import floors
import measure
import run
from floors import Floor, Verdict


def floor(least):
    return Floor.of([least, least + 0.1, least + 0.5])


class Rule(unittest.TestCase):
    def test_a_floor_is_the_least_value_less_the_margin_rounded_down(self):
        self.assertEqual(floors.floor_of(1.0), 0.90)
        self.assertEqual(floors.floor_of(2.0), 1.80)
        self.assertEqual(floors.floor_of(0.978), 0.88)

    def test_the_range_of_the_values_is_kept(self):
        self.assertEqual(Floor.of([3.0, 1.0, 2.5]), Floor(0.90, 3, 1.0, 2.5, 3.0))

    def test_what_is_written_can_be_read(self):
        found = {"one/ratio": floor(0.5), "another": floor(12.345)}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "floors.toml"
            path.write_text(floors.written(found))
            self.assertEqual(floors.read(path), found)


class Verdicts(unittest.TestCase):
    def test_a_value_at_its_floor_or_just_above_is_good(self):
        for value in (0.900, 0.901):
            self.assertFalse(Verdict("ratio", value, floor(1.0)).is_missed, value)

    def test_a_value_just_below_its_floor_is_missed_and_says_number_and_floor(self):
        verdict = Verdict("ratio", 0.899, floor(1.0))
        self.assertTrue(verdict.is_missed)
        self.assertEqual(str(verdict), "ratio is 0.899, below its floor of 0.90")

    def test_what_was_not_measured_or_has_no_floor_is_missed(self):
        self.assertTrue(Verdict("ratio", None, floor(1.0)).is_missed)
        self.assertTrue(Verdict("ratio", 5.0, None).is_missed)

    def test_every_floor_and_every_value_gets_a_verdict(self):
        found = floors.verdicts({"a": floor(1.0), "b": floor(1.0)}, {"b": 2.0, "c": 3.0})
        self.assertEqual([verdict.name for verdict in found], ["a", "b", "c"])
        self.assertEqual([verdict.is_missed for verdict in found], [True, False, True])

    def test_the_better_of_two_measurements_counts(self):
        self.assertEqual(floors.better({"a": 1.0, "b": 3.0}, {"a": 2.0, "c": 1.0}),
                         {"a": 2.0, "b": 3.0, "c": 1.0})


class File(unittest.TestCase):
    """The floors that are in force."""

    def setUp(self):
        self.floors = floors.read()

    def test_every_floor_follows_from_its_runs_by_the_rule(self):
        for name, found in self.floors.items():
            self.assertGreaterEqual(found.runs, floors.RUNS, name)
            self.assertEqual(found.floor, floors.floor_of(found.min), name)
            self.assertLessEqual(found.min, found.median, name)
            self.assertLessEqual(found.median, found.max, name)

    def test_every_floor_belongs_to_a_group_and_every_group_has_floors(self):
        names = {run.group_of(name, measure.GROUPS) for name in self.floors}
        self.assertEqual(names, set(measure.GROUPS))
