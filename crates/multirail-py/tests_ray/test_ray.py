"""Pipelines and arrays on a Ray cluster of two nodes, which are processes of this machine."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import multirail as mr
import numpy as np
import ray
from ray.cluster_utils import Cluster

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples/ray_microscope.py"
# Where Ray notes which cluster runs, whatever folder the cluster uses.
RAY_FOLDER = "/tmp/ray"
# Seconds that a program may take.
LIMIT_S = 120


@ray.remote(num_cpus=1)
class Holder:
    """Has an array, and says in which process."""

    def make(self, length):
        self.ref = mr.ray.put(np.arange(length, dtype="f8").reshape(2, -1))
        return self.ref

    def total(self, ref):
        return float(mr.ray.get(ref).sum())


@ray.remote(num_cpus=0)
def look(copies):
    """The sum of a copied array, and whether it is in shared memory. Writing to it is local."""
    array = mr.ray.get(copies)["w"]
    maps = pathlib.Path("/proc/self/maps").read_text()
    total = float(array.sum())
    array += 1
    return total, "multirail copy" in maps


@ray.remote(num_cpus=0)
def node():
    return ray.get_runtime_context().get_node_id()


@ray.remote(num_cpus=0)
def has_copy(copies):
    with contextlib.suppress(LookupError):
        return mr.ray.get(copies) is not None
    return False


class OnRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The paths of its sockets must be short.
        folder = tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True)
        cls.addClassCleanup(folder.cleanup)
        os.makedirs(RAY_FOLDER, exist_ok=True)
        head = {"num_cpus": 3, "resources": {"head": 8}, "temp_dir": folder.name}
        cls.cluster = Cluster(initialize_head=True, head_node_args=head)
        cls.cluster.add_node(num_cpus=3, resources={"other": 8})
        ray.init(address=cls.cluster.address, log_to_driver=False)

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()
        cls.cluster.shutdown()
        # Other clusters may run, too.
        with contextlib.suppress(OSError):
            os.rmdir(RAY_FOLDER)

    def test_filters_are_actors(self):
        p = mr.ray.Pipeline()

        @p.filter(copies=2, stateless=True)
        def negative(x):
            return 255 - x

        @p.filter(stream=True)
        def total(values):
            yield np.int64(sum(int(x.sum()) for x in values))

        inputs = [np.full((10, 10), n, "u1") for n in range(50)]
        with p:
            for _ in range(2):
                (result,) = p.run(inputs)
                self.assertEqual(result, sum(int((255 - x).sum()) for x in inputs))

    def test_nothing_is_lost_with_an_actor(self):
        p = mr.ray.Pipeline()

        @p.filter(copies=3, stateless=True)
        def tell(x):
            time.sleep(0.01)
            return np.append(x, os.getpid())

        with p:
            pids = set()
            for turn in range(2):
                seen = []
                for result in p.run(np.array([n]) for n in range(200)):
                    seen.append(int(result[0]))
                    pids.add(int(result[1]))
                    if turn == 0 and len(seen) == 50:
                        os.kill(int(result[1]), signal.SIGKILL)
                self.assertEqual(sorted(seen), list(range(200)))
            self.assertEqual(len(pids), 4, "the actor was started again, and took part")

    def test_failures(self):
        p = mr.ray.Pipeline()
        p.filter(name="picky")(lambda x: bytes([1 // x[0]]))
        with p, self.assertRaisesRegex(mr.FilterFailed, "ZeroDivisionError") as failed:
            list(p.run([b"\0"]))
        self.assertEqual(failed.exception.filter, "picky")
        self.assertEqual(failed.exception.host, ray.util.get_node_ip_address())
        p.filter(name="ends", stream=True)(lambda values: os._exit(len(list(values))))
        with p, self.assertRaisesRegex(mr.FilterFailed, "lost") as failed:
            list(p.run([b"\1"]))
        self.assertEqual(failed.exception.filter, "ends")

    def test_the_microscope(self):
        with tempfile.TemporaryDirectory() as folder:
            slide = f"{folder}/slide.npy"
            pixels = np.random.default_rng(1).integers(256, size=(700, 900, 3)).astype("u1")
            np.save(slide, pixels)
            for x, y, width, height, factor in ((0, 0, 900, 700, 7), (250, 10, 301, 503, 4)):
                inside = pixels[y : y + height, x : x + width]
                expected = np.zeros((-(-height // factor), -(-width // factor), 3), "u1")
                for row, column in np.ndindex(expected.shape[:2]):
                    of = inside[row * factor :, column * factor :][:factor, :factor]
                    expected[row, column] = of.sum(axis=(0, 1)) // (of.shape[0] * of.shape[1])
                window = f"{x},{y},{width},{height}"
                made = f"{folder}/made.npy"
                options = ["--window", window, "--factor", str(factor), "--copies", "1"]
                subprocess.run(
                    [sys.executable, "-B", EXAMPLE, slide, "--out", made, *options],
                    check=True,
                    capture_output=True,
                    timeout=LIMIT_S,
                    env={**os.environ, "RAY_ADDRESS": self.cluster.address},
                )
                np.testing.assert_array_equal(np.load(made), expected)

    def test_arrays_go_between_nodes(self):
        a = Holder.options(resources={"head": 1}).remote()
        b = Holder.options(resources={"other": 1}).remote()
        length = 1 << 20
        ref = ray.get(a.make.remote(length))
        for holder in (b, b, a):
            self.assertEqual(ray.get(holder.total.remote(ref)), length * (length - 1) / 2)
        self.assertEqual(mr.ray.get(ref).shape, (2, length // 2))
        mr.ray.release(ref)
        with self.assertRaises(LookupError):
            mr.ray.get(ref)
        ref = ray.get(b.make.remote(10))
        for holder in (a, b):
            ray.kill(holder)
        with self.assertRaises(mr.Lost):
            for _ in range(100):
                mr.ray.get(ref)
                time.sleep(0.1)

    def on_each(self, task, *arguments):
        """What a task returns on the two nodes."""
        tasks = [task.options(resources={name: 1}) for name in ("head", "other")]
        return ray.get([task.remote(*arguments) for task in tasks], timeout=LIMIT_S)

    def test_a_broadcast_puts_a_copy_in_each_node(self):
        for length in (1, 1 << 20):
            array = np.arange(length, dtype="f8")
            copies = mr.ray.broadcast({"w": array, "b": b"bias"})
            self.assertEqual(len(copies.nodes), 2)
            total = length * (length - 1) / 2
            # Twice, since what a task writes must not be in the copy.
            for _ in range(2):
                self.assertEqual(self.on_each(look, copies), [(total, True)] * 2)
            got = mr.ray.get(copies)
            self.assertEqual(bytes(got["b"]), b"bias")
            memories = [copy.path for copy in copies.copies.values()]
            self.assertTrue(all(map(os.path.exists, memories)))
            for _ in range(2):
                mr.ray.release(copies)
            self.assertFalse(any(map(os.path.exists, memories)))
            self.assertEqual(self.on_each(has_copy, copies), [False, False])
            np.testing.assert_array_equal(got["w"], array)

    def test_a_broadcast_to_the_node_of_an_actor(self):
        with self.assertRaises(ValueError):
            mr.ray.broadcast(b"1", actors=[])
        with self.assertRaises(TypeError):
            mr.ray.broadcast(np.array(["text"]))
        actors = [Holder.options(num_cpus=0, resources={"other": 1}).remote() for _ in range(2)]
        copies = mr.ray.broadcast({"w": np.full((300, 400), 2, "i4")}, actors=actors)
        self.assertEqual(len(copies.nodes), 1)
        # The other node fetches it.
        self.assertEqual(self.on_each(look, copies), [(240_000, False), (240_000, True)])
        mr.ray.release(copies)

    def test_a_node_whose_copy_is_lost_fetches_another(self):
        copies = mr.ray.broadcast({"w": np.ones(1000)})
        other = self.on_each(node)[1]
        os.kill(int(copies.copies[other].path.split("/")[2]), signal.SIGKILL)
        while os.path.exists(copies.copies[other].path):
            time.sleep(0.01)
        self.assertEqual(self.on_each(look, copies), [(1000, True), (1000, False)])
        again = mr.ray.broadcast({"w": np.ones(2000)})
        self.assertEqual(self.on_each(look, again), [(2000, True)] * 2)
        for each in (copies, again):
            mr.ray.release(each)


if __name__ == "__main__":
    unittest.main()
