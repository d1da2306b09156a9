"""What rows of copies beside a stream say, and claims just inside and just outside of limits."""

import pathlib
import tempfile
import unittest

from multirail_experiments.background.measure import row, stream_values
from multirail_experiments.background.results import BACKGROUND, PLAIN, by_network
from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED, Source
from multirail_experiments.experiment import load_plot
from multirail_experiments.paths import HOME

PLOT = load_plot(HOME / "peers/background/plot.py")


def rows(beside, copy):
    """Rows of two rounds, in which the stream alone and `cp` alone have 100 and 50 Mbit/s."""
    rates = {
        ("stream", ""): [100, 50],
        ("stream", PLAIN): [60, 30],
        ("stream", BACKGROUND): beside,
        ("copy", PLAIN): [100, 50],
        ("copy", BACKGROUND): copy,
    }
    return [
        {
            "kind": kind,
            "network": "n",
            "line": line,
            "mbit_s": mbit_s,
            "cpu_was_limit": False,
            **({"rtt_ms": [20, 30]} if kind == "stream" else {}),
        }
        for (kind, line), mbit_s in rates.items()
        if mbit_s
    ]


class Claims(unittest.TestCase):
    def verdicts(self, *measured):
        claims = PLOT.claims(rows(*measured))
        self.assertEqual({claim.source for claim in claims}, {Source.LIMIT})
        return [claim.verdict for claim in claims]

    def test_nine_tenths_are_enough(self):
        self.assertEqual(self.verdicts([90, 45], [90, 45]), [REACHED, REACHED])
        self.assertEqual(self.verdicts([89, 44.5], [90, 45]), [NOT_REACHED, REACHED])
        self.assertEqual(self.verdicts([90, 45], [89, 44.5]), [REACHED, NOT_REACHED])

    def test_claims_say_how_often_they_were_measured(self):
        self.assertEqual([claim.runs for claim in PLOT.claims(rows([90, 45], [90, 45]))], [2, 2])

    def test_what_was_not_measured_has_no_verdict(self):
        self.assertEqual(self.verdicts([], []), [NO_VERDICT, NO_VERDICT])


class Rows(unittest.TestCase):
    def test_round_trips_are_those_of_streams(self):
        found = by_network(rows([90, 45], [90, 45]))["n"]
        self.assertEqual((found["stream", ""].rtt, found["copy", PLAIN].rtt), (25, None))

    def test_values_of_rounds_become_lists(self):
        found = row([{"mbit_s": 1, "cpu_idle_share": 0.0}, {"mbit_s": 2, "cpu_idle_share": 0.1}])
        self.assertEqual(found, {"mbit_s": [1, 2], "cpu_idle_share": 0.05, "cpu_was_limit": True})

    def test_a_stream_has_the_rate_of_its_receiver(self):
        sender = {"mean_rtt": 21500, "retransmits": 3, "bits_per_second": 9e7}
        said = {
            "end": {
                "streams": [{"sender": sender}],
                "sum_received": {"bits_per_second": 8e7},
            }
        }
        self.assertEqual(
            stream_values(said), {"mbit_s": 80.0, "rtt_ms": 21.5, "resent_segments": 3}
        )

    def test_a_stream_that_failed_says_why(self):
        with self.assertRaisesRegex(RuntimeError, "unable to connect"):
            stream_values({"end": {}, "error": "unable to connect"})


class Pictures(unittest.TestCase):
    def test_every_network_has_one(self):
        with tempfile.TemporaryDirectory() as folder:
            PLOT.figures(rows([90, 45], [90, 45]), pathlib.Path(folder))
            names = sorted(path.name for path in pathlib.Path(folder).iterdir())
        self.assertEqual(names, ["network-1.png", "tables.md"])


if __name__ == "__main__":
    unittest.main()
