"""Plans of multicasts can be measured, and their rows become claims."""

import pathlib
import tempfile
import tomllib
import unittest

from multirail_experiments.claims import NO_VERDICT, NOT_REACHED, REACHED, demanded
from multirail_experiments.experiment import load_plot
from multirail_experiments.multicast import measure as multicast
from multirail_experiments.multicast import results as multicast_results
from multirail_experiments.multicast.claims import ratio_claim, share_claim, wan_claim
from multirail_experiments.multicast.network import Clusters, access_bytes_s
from multirail_experiments.multicast.programs import bcast as multicast_bcast
from multirail_experiments.multicast.programs import simulated
from multirail_experiments.multicast.rails import RailClusters, network_of
from multirail_experiments.multicast.results import Broadcasts
from multirail_experiments.paths import HOME
from multirail_experiments.plan import Plan
from multirail_experiments.points import points

try:
    import matplotlib
except ImportError:
    matplotlib = None

PLANS = [
    plan
    for plan in (Plan.read(path.parent) for path in HOME.glob("*/*/plan.toml"))
    if plan.kind == "multicast"
]


def row(line, mb_s, network="4x4", name="fast", bound=10.0, size=None, **more):
    found = {
        "kind": "broadcast",
        "network": network,
        "scenario": name,
        "hosts": 16,
        "line": line,
        "mb_s": mb_s,
        "bound_mb_s": bound,
        "seconds": [1.0 / rate for rate in mb_s],
        "setup_s": [0.1],
        "cpu_busy_share": [0.5],
        "cpu_s": [1.0],
        "peers_cpu_s": [0.5],
        "wan_copies": [3.14],
        "wan_bytes": {},
        "file_bytes": size or 1000,
        "cpu_was_limit": False,
        **more,
    }
    return found if size is None else {**found, "message_bytes": size}


class Plans(unittest.TestCase):
    def test_committed_plans_can_be_measured(self):
        self.assertGreaterEqual(len(PLANS), 4)
        for plan in PLANS:
            for quick in (False, True):
                with self.subTest(plan=plan.name, quick=quick):
                    table = multicast.chosen(plan.table, quick)
                    self.assertTrue(table["network"] and table["line"])
                    self.assertTrue(("sizes" in table) != ("scenarios" in table))
                    names = [network["name"] for network in table["network"]]
                    for network in table["network"]:
                        net = network_of("multirail", network, {})
                        is_of_rails = "rails" in network
                        first = "10.77.0.2" if is_of_rails else "10.80.0.2"
                        self.assertEqual(net.root.address, first)
                        self.assertLessEqual(len(net.hosts), 128)
                        for name in table.get("scenarios", ["fast"]):
                            events = multicast.events_on(network, name)
                            self.assertEqual(events[0][0], 0)
                            self.assertTrue(
                                all(
                                    set(pair) <= set(network["clusters"])
                                    for _, rates in events
                                    for pair in rates
                                )
                            )
                    for line in table["line"]:
                        self.assertTrue(callable(multicast.program_of(line).session))
                        self.assertTrue(
                            quick or set(line.get("networks", names)) <= set(names), line["name"]
                        )
                    self.assertEqual(
                        len({line["name"] for line in table["line"]}), len(table["line"])
                    )

    def test_quick_names_what_there_is(self):
        for plan in PLANS:
            few = plan.table["quick"]
            for key, names in (("network", "networks"), ("line", "lines")):
                self.assertLessEqual(
                    set(few.get(names, [])), {one["name"] for one in plan.table[key]}, plan.name
                )
            self.assertLessEqual(
                set(few.get("scenarios", [])), set(plan.table.get("scenarios", [])), plan.name
            )

    def test_a_network_may_have_scenarios_and_sizes_of_its_own(self):
        table = {
            "network": [{"name": "x", "sizes": ["1k"]}, {"name": "y"}],
            "line": [{"name": "l"}],
            "sizes": ["2k"],
            "quick": {"sizes": ["3k"]},
        }
        self.assertEqual(multicast.values_of(table, table["network"][0], "sizes"), ["1k"])
        self.assertEqual(multicast.values_of(table, table["network"][1], "sizes"), ["2k"])
        quick = multicast.chosen(table, True)
        for network in quick["network"]:
            self.assertEqual(multicast.values_of(quick, network, "sizes"), ["3k"])

    def test_access_is_by_cluster(self):
        network = {"access": "10mbit", "clusters": {"a": 1, "b": 4}}
        self.assertEqual(access_bytes_s(network), {"a": 1_250_000, "b": 5_000_000})
        self.assertIsNone(access_bytes_s({"clusters": {"a": 1}}))

    def test_addresses_are_those_of_the_lab(self):
        net = Clusters("multirail", {"name": "x", "clusters": {"a": 2, "b": 300}}, {})
        addresses = {host.name: host.address for host in net.hosts}
        self.assertEqual(
            [addresses[name] for name in ("a1", "b0", "b249", "b250")],
            ["10.80.0.3", "10.81.0.2", "10.81.0.251", "10.81.1.2"],
        )


class Rails(unittest.TestCase):
    def net(self, **more):
        network = {"name": "x", "rails": ["100mbit", "25mbit"], **more}
        return RailClusters("multirail", network, {})

    def test_every_host_has_an_address_on_each_rail_of_its_cluster(self):
        net = self.net(clusters={"a": 1, "b": 2}, links=["50mbit", "10mbit"])
        found = {host.name: host.addresses for host in net.hosts}
        self.assertEqual(
            found,
            {
                "a0": ("10.77.0.2", "10.77.1.2"),
                "b0": ("10.77.2.3", "10.77.3.3"),
                "b1": ("10.77.2.4", "10.77.3.4"),
            },
        )

    def test_the_topology_has_a_rail_for_each_port_of_a_cluster(self):
        net = self.net(clusters={"a": 1, "b": 2}, links=["50mbit", "10mbit"], queue="64k")
        found = tomllib.loads("\n".join(net.topology()))
        self.assertEqual([host["name"] for host in found["host"]], ["r", "a0", "b0", "b1"])
        self.assertEqual(
            [(rail["rate"], rail["rates"]["r"], rail["hosts"]) for rail in found["rail"]],
            [
                ("100mbit", "50mbit", ["r", "a0"]),
                ("25mbit", "10mbit", ["r", "a0"]),
                ("100mbit", "50mbit", ["r", "b0", "b1"]),
                ("25mbit", "10mbit", ["r", "b0", "b1"]),
            ],
        )

    def test_the_bound_counts_all_ports_and_all_links(self):
        # 125 Mbit/s to and from each host, and 60 between clusters.
        for clusters, mb_s in (({"a": 3}, 15.625), ({"a": 2, "b": 2}, 7.5)):
            net = self.net(clusters=clusters, links=["50mbit", "10mbit"])
            self.assertAlmostEqual(15.0 / net.bound_s([], 15_000_000), mb_s)
        # A link carries no more than the ports of its rail, of all hosts together.
        for clusters, mbit_s in (({"a": 1, "b": 1}, 10 + 25), ({"a": 2, "b": 2}, 10 + 2 * 25)):
            net = self.net(clusters=clusters, links=["10mbit", "1gbit"])
            self.assertAlmostEqual(15.0 / net.bound_s([], 15_000_000), mbit_s / 8)

    def test_the_first_rail_is_the_best(self):
        for plan in PLANS:
            for network in plan.table["network"]:
                if "rails" in network:
                    rates = RailClusters("multirail", network, {}).rail_rates_mbit_s
                    self.assertEqual(max(rates), rates[0], network["name"])


class Deaths(unittest.TestCase):
    def test_one_in_ten_by_seed_and_never_the_root(self):
        hosts = Clusters(
            "multirail", {"name": "x", "clusters": dict.fromkeys("abcd", 16)}, {}
        ).hosts
        line = {"name": "x", "kill": {"share": 0.1}}
        found = multicast_bcast.deaths(line, hosts, 10.0, 1)
        self.assertEqual(found, multicast_bcast.deaths(line, hosts, 10.0, 1))
        self.assertNotEqual(found, multicast_bcast.deaths(line, hosts, 10.0, 2))
        self.assertEqual(len({host.name for _, host in found}), 6)
        for seed in range(50):
            for at_s, host in multicast_bcast.deaths(line, hosts, 10.0, seed):
                self.assertNotEqual(host, hosts[0])
                self.assertTrue(1.0 <= at_s <= 9.0)
        self.assertEqual(multicast_bcast.deaths({"name": "x"}, hosts, 10.0, 1), [])


class Simulated(unittest.TestCase):
    def test_the_simulator_is_told_what_the_network_is(self):
        network = {"name": "x", "clusters": {"a": 2, "b": 3}, "delay": "50ms", "rails": []}
        events = multicast.events_on({**network, "rate_scale": 0.5}, "fast")
        found = simulated.broadcast_of(network, events, 1000, {"method": "mob", "seeds": 2})
        rate = 5e6 * 1448 / 1514
        self.assertEqual(found["link_bytes_s"], [[0, rate], [rate, 0]])
        self.assertEqual((found["clusters"], found["delay_us"]), ([2, 3], 50_000))
        self.assertEqual((found["total_bytes"], found["seeds"]), (1000, [1, 2]))
        self.assertEqual(simulated.delay_us({}), 0)

    def test_what_it_does_not_model_is_refused(self):
        network, line = {"name": "x", "clusters": {"a": 1, "b": 1}}, {"method": "adaptive"}
        for more, name in (
            ({}, "mayhem"),
            ({"access": "1mbit"}, "fast"),
            ({"rails": ["-"]}, "fast"),
        ):
            with self.assertRaises(ValueError):
                simulated.broadcast_of(
                    {**network, **more}, multicast.events_on(network, name), 1000, line
                )


class Several(unittest.TestCase):
    def test_a_root_serves_if_it_receives_from_others(self):
        net = Clusters("multirail", {"name": "x", "clusters": {"a": 2, "b": 1}}, {})
        for roots, wanted in (
            (None, ["a1", "b0"]),
            (["a1"], ["a0", "b0"]),
            (["a0", "a1"], ["a0", "a1", "b0"]),
        ):
            line = {} if roots is None else {"roots": roots}
            found = [host.name for host in multicast_bcast.serving(net, line)]
            self.assertEqual(found, wanted)

    @unittest.skipIf(matplotlib is None, "matplotlib: not installed")
    def test_shares_are_fair_if_rates_are_equal(self):
        plot = load_plot(HOME / "mob/several/plot.py")
        self.assertEqual([plot.jain(each) for each in ([2, 2], [1, 0])], [1.0, 0.5])
        self.assertEqual([plot.slowest_over_mean(each) for each in ([2, 2], [3, 1])], [1.0, 0.5])
        # Two files of which one takes twice as long: all bytes over the longer time.
        self.assertEqual(plot.together([4, 2]), 4)


class Rows(unittest.TestCase):
    def verdict(self, claim_of, *rows, **options):
        return claim_of(Broadcasts(rows), "w", "4x4", "fast", "adaptive", **options).verdict

    def test_share_of_the_bound_just_inside_and_outside(self):
        for rate, wanted in ((8.5, REACHED), (8.44, NOT_REACHED)):
            self.assertEqual(self.verdict(share_claim, row("adaptive", [rate]), least=0.85), wanted)
        self.assertEqual(self.verdict(share_claim, row("mob", [9]), least=0.85), NO_VERDICT)

    def test_copies_just_inside_and_outside(self):
        for copies, wanted in ((3.18, REACHED), (3.19, NOT_REACHED)):
            self.assertEqual(
                self.verdict(wan_claim, row("adaptive", [1], wan_copies=[copies])), wanted
            )

    def test_ratios_are_against_the_best_and_repeat_by_repeat(self):
        rows = [row("adaptive", [3, 6, 3]), row("one", [2, 4, 2]), row("other", [1, 1, 1])]
        claim = ratio_claim(
            Broadcasts(rows), "w", "4x4", "fast", "adaptive", ["one", "other", "absent"], 1.5
        )
        self.assertEqual((claim.verdict, claim.measured), (REACHED, "1.50"))
        self.assertIn("that of one", claim.text)
        self.assertEqual(self.verdict(ratio_claim, *rows, against="absent", least=1), NO_VERDICT)

    def test_demands_have_a_limit_of_either_side(self):
        self.assertEqual(demanded("w", "t", 64.04, most=64, digits=1).verdict, REACHED)
        self.assertEqual(demanded("w", "t", 64.06, most=64, digits=1).verdict, NOT_REACHED)
        self.assertEqual(demanded("w", "t", None, most=64).verdict, NO_VERDICT)

    def test_points_are_those_of_the_default(self):
        rows = [row("adaptive", [9]), row("mob", [10]), row("mob", [1], name="slow")]
        (point,) = multicast_results.points(rows)
        self.assertEqual((point.network, point.best, point.is_lost), ("4x4, fast", "mob", True))
        self.assertAlmostEqual(point.share, 0.9)
        # RESULTS.md takes points from the rows of any experiment.
        self.assertEqual(list(points(rows)), [point])

    def test_an_unequal_file_is_not_equal(self):
        with tempfile.TemporaryDirectory() as folder:
            one, other = pathlib.Path(folder, "one"), pathlib.Path(folder, "other")
            one.write_bytes(b"x" * 3_000_000)
            for content, wanted in (
                (b"x" * 3_000_000, True),
                (b"x" * 2_999_999 + b"y", False),
                (b"x" * 2_999_999, False),
                (b"x" * 3_000_001, False),
            ):
                other.write_bytes(content)
                self.assertEqual(multicast.is_equal(one, other), wanted)
            self.assertFalse(multicast.is_equal(one, pathlib.Path(folder, "absent")))


@unittest.skipIf(matplotlib is None, "matplotlib: not installed")
class Plots(unittest.TestCase):
    def test_every_plan_is_drawn_and_judged(self):
        for plan in PLANS:
            with self.subTest(plan=plan.name), tempfile.TemporaryDirectory() as folder:
                plot = load_plot(plan.folder / "plot.py")
                rows = list(self.rows_of(plan.table))
                plot.figures(rows, pathlib.Path(folder))
                self.assertTrue(list(pathlib.Path(folder).glob("*.png")))
                self.assertIn("| adaptive", pathlib.Path(folder, "tables.md").read_text())
                verdicts = [claim.verdict for claim in plot.claims(rows)]
                self.assertIn(REACHED, verdicts)
                # Without measurements no claim is reached.
                self.assertNotIn(REACHED, [claim.verdict for claim in plot.claims([])])

    def rows_of(self, table):
        for network in table["network"]:
            for line in table["line"]:
                if network["name"] not in line.get("networks", [network["name"]]):
                    continue
                more = (
                    {"memory_peak_mib": [20.0], "piece_bytes": 65536, "command_setup_s": [0.01]}
                    if line["program"] == "bcast"
                    else {}
                )
                if "roots" in line:
                    more["each_s"] = [[1.0 / 9.0] * len(line["roots"])]
                if "kill" in line:
                    more |= {
                        "died": [[[1.0, "b1"]]],
                        "returned": [1],
                        "returned_s": [3.0],
                        "resumed_bytes": [100],
                    }
                rate = [9.0 if line.get("method") == "adaptive" else 5.0]
                for name in table.get("scenarios", []):
                    yield row(line["name"], rate, network["name"], name, **more)
                for size in table.get("sizes", []):
                    yield row(
                        line["name"], rate, network["name"], size=1 << 10 << len(size), **more
                    )


if __name__ == "__main__":
    unittest.main()
