"""Pipelines whose filters are functions, in processes of this host and of a daemon."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import unittest.mock

import multirail as mr
import numpy as np
from multirail import _values

ROOT = pathlib.Path(__file__).parents[3]

# Seconds that a program may take.
LIMIT_S = 60
WORKER = [sys.executable, "-B", "-m", "multirail.worker"]


def negative(x):
    return bytes(255 - b for b in x)


def parts(x):
    for at in range(0, len(x), 2):
        yield x[at : at + 2]


def lengths(values):
    yield str(sum(len(value) for value in values)).encode()


def odd(x):
    return x if x[0] % 2 else None


def same(x):
    return x


def kind(x):
    return type(x).__name__.encode()


def slow_with_pid(x):
    time.sleep(0.005)
    return x + b" %d" % os.getpid()


def pids(values):
    for _ in values:
        yield b"%d" % os.getpid()
        time.sleep(0.01)


def picky(x):
    if x == b"7":
        raise KeyError("no sevens")
    return x


def a_list(_x):
    return [1, 2]


def many(values):
    for value in values:
        yield value * 1000


def numbers(count):
    return [b"%d" % n for n in range(count)]


def pipeline(*functions, **options):
    p = mr.Pipeline()
    for function in functions:
        p.filter(**options)(function)
    return p


def wait_for_end(pid):
    """Waits until a process has ended, also as a zombie."""
    until = time.monotonic() + LIMIT_S
    with contextlib.suppress(FileNotFoundError):
        while time.monotonic() < until:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
            if stat.rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.01)
        raise AssertionError(f"process {pid} does not end")


class Local(unittest.TestCase):
    def test_many_copies_give_what_the_functions_give(self):
        inputs = [bytes([n % 256, n // 256]) * 3 for n in range(300)]
        expected = sorted(part for x in inputs for part in parts(negative(x)))
        with mr.Pipeline() as p:
            p.filter(copies=3, stateless=True)(negative)
            p.filter(copies=2)(parts)
            for _ in range(2):
                self.assertEqual(sorted(p.run(inputs)), expected)

    def test_one_copy_keeps_the_order(self):
        with pipeline(same, odd) as p:
            expected = [n for n in numbers(500) if n[0] % 2]
            self.assertEqual(list(p.run(numbers(500))), expected)

    def test_a_filter_of_a_stream_sees_all_values(self):
        with pipeline(lengths, stream=True) as p:
            self.assertEqual(list(p.run([b"abc", b"", b"de"])), [b"5"])
            self.assertEqual(list(p.run([])), [b"0"])

    def test_other_graphs(self):
        with pipeline(negative, same, odd) as p:
            p.stream(negative, same)
            p.stream("negative", odd)
            inputs = [bytes([n]) for n in range(50)]
            made = [negative(x) for x in inputs]
            expected = sorted(made + [x for x in made if odd(x)])
            self.assertEqual(sorted(p.run(inputs)), expected)
        with pipeline(same, odd) as p:
            p.stream(same, odd, same)
            with self.assertRaisesRegex(ValueError, "circle"):
                p.run([])

    def test_kinds_of_values(self):
        with pipeline(kind) as p:
            inputs = [b"", bytearray(3), memoryview(b"x")]
            self.assertEqual(list(p.run(inputs)), [b"bytes", b"memoryview", b"memoryview"])

    def test_definitions_are_checked(self):
        p = pipeline(same)
        for wrong, options in (
            (ValueError, {"stateless": True, "stream": True}),
            (ValueError, {"copies": 0}),
            (ValueError, {"name": "same"}),
            (ValueError, {"name": "input"}),
            (TypeError, {"hosts": "b"}),
        ):
            with self.subTest(options), self.assertRaises(wrong):
                p.filter(**options)(same)
        with self.assertRaisesRegex(ValueError, "no filter of this pipeline"):
            p.stream(same, odd)
        with self.assertRaisesRegex(ValueError, "no filters"):
            mr.Pipeline().run([])


class Failures(unittest.TestCase):
    def test_an_exception_comes_with_its_traceback(self):
        with mr.Pipeline() as p:
            p.filter(copies=2)(picky)
            with self.assertRaises(mr.FilterFailed) as failed:
                list(p.run(numbers(20)))
            error = failed.exception
            self.assertEqual((error.filter, error.host), ("picky", "local"))
            self.assertIn(error.copy, (0, 1))
            self.assertRegex(
                str(error), r"(?s)copy \d of filter 'picky' on local: Traceback.*sevens"
            )
            self.assertIn('raise KeyError("no sevens")', str(error))
            self.assertEqual(sorted(p.run(numbers(7))), numbers(7), "the next run is not concerned")

    def test_an_exception_of_the_inputs_is_raised_as_it_is(self):
        def inputs():
            yield b"x"
            raise LookupError("no more")

        with pipeline(same) as p, self.assertRaisesRegex(LookupError, "no more"):
            list(p.run(inputs()))

    def test_other_objects_are_refused(self):
        with pipeline(same) as p:
            for value in ({}, "text", 1, None, [b"x"]):
                with self.subTest(value), self.assertRaisesRegex(TypeError, "cannot go through"):
                    list(p.run([value]))
        with pipeline(a_list) as p, self.assertRaisesRegex(mr.FilterFailed, "a list cannot go"):
            list(p.run([b"x"]))

    def test_the_limit_of_a_buffer(self):
        p = mr.Pipeline(limit_bytes=1000)
        p.filter()(same)
        p.filter(stream=True)(many)
        with p:
            self.assertEqual(list(p.run([b"x"])), [b"x" * 1000])
            for value in (b"xx", b"x" * 1001):
                with self.assertRaisesRegex(mr.MultirailError, "limit is 1000"):
                    list(p.run([value]))

    def test_buffers_of_a_killed_stateless_copy_go_to_the_others(self):
        with mr.Pipeline() as p:
            p.filter(copies=3, stateless=True)(slow_with_pid)
            by_turn = []
            for turn in range(2):
                seen, at = [], set()
                for result in p.run(numbers(300)):
                    value, pid = result.split()
                    seen.append(value)
                    at.add(int(pid))
                    if turn == 0 and len(seen) == 50:
                        os.kill(int(pid), signal.SIGKILL)
                self.assertEqual(sorted(seen), sorted(numbers(300)))
                by_turn.append(at)
            self.assertEqual(len(by_turn[1]), 3, "the copy was started again")
            self.assertEqual(len(by_turn[0] | by_turn[1]), 4)

    def test_a_killed_copy_with_a_state_fails_the_run(self):
        with mr.Pipeline() as p:
            p.filter(stream=True, copies=2)(pids)
            results = p.run(numbers(1000))
            os.kill(int(next(results)), signal.SIGKILL)
            with self.assertRaisesRegex(mr.FilterFailed, "lost") as failed:
                list(results)
            self.assertEqual((failed.exception.filter, failed.exception.host), ("pids", "local"))
            self.assertIn(failed.exception.copy, (0, 1))
            self.assertTrue(failed.exception.is_lost)
            self.assertEqual(len(list(p.run(numbers(4)))), 4)


class Ends(unittest.TestCase):
    def test_a_run_that_is_not_wanted_any_more_ends(self):
        ended = threading.Event()

        def endless():
            try:
                while True:
                    yield b"x"
            finally:
                ended.set()

        with pipeline(same) as p:
            inputs = endless()
            for result in p.run(inputs):
                self.assertEqual(result, b"x")
                break
            inputs.close()
            self.assertTrue(ended.is_set(), "no thread uses the inputs")
            results = p.run(iter([b"1", b"2"]))
            next(results)
            with self.assertRaisesRegex(RuntimeError, "runs already"):
                list(p.run([]))
            results.close()
            self.assertEqual(list(p.run([b"y"])), [b"y"])

    def program(self, text, *arguments):
        """Starts a program whose functions are in its main module."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "program.py")
        path.write_text(textwrap.dedent(text))
        child = subprocess.Popen(
            [sys.executable, "-B", path, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        return child

    ENDLESS = """
        import itertools, os, sys, time, multirail as mr
        p = mr.Pipeline()
        @p.filter()
        def tell(x):
            return b"%d" % os.getpid()
        if __name__ == "__main__":
            def one():
                yield b""
                # In one write each, as two threads print.
                os.write(1, b"blocked\\n")
                time.sleep(1000)
            inputs = one() if sys.argv[1:] == ["blocked"] else itertools.repeat(b"")
            results = p.run(inputs)
            os.write(1, b"%d\\n" % int(next(results)))
            if sys.argv[1:] == ["end"]:
                sys.exit(3)
            for _ in results: pass
    """

    def test_workers_end_with_a_killed_program(self):
        child = self.program(self.ENDLESS)
        worker = int(child.stdout.readline())
        child.kill()
        child.wait(LIMIT_S)
        wait_for_end(worker)

    def test_ctrl_c_ends_a_run(self):
        child = self.program(self.ENDLESS)
        worker = int(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", child.communicate(timeout=LIMIT_S)[0])
        self.assertEqual(child.returncode, -signal.SIGINT)
        wait_for_end(worker)

    def test_ctrl_c_ends_a_run_whose_input_is_blocked(self):
        child = self.program(self.ENDLESS, "blocked")
        lines = {child.stdout.readline().strip(), child.stdout.readline().strip()}
        lines.remove("blocked")
        child.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", child.communicate(timeout=LIMIT_S)[0])
        self.assertEqual(child.returncode, -signal.SIGINT)
        wait_for_end(int(lines.pop()))

    def test_a_program_can_end_in_the_middle_of_a_run(self):
        child = self.program(self.ENDLESS, "end")
        worker = int(child.stdout.readline())
        self.assertEqual(child.communicate(timeout=LIMIT_S)[0], "")
        self.assertEqual(child.returncode, 3)
        wait_for_end(worker)

    @unittest.mock.patch.dict(sys.modules, {"cloudpickle": None})
    def test_a_lambda_needs_cloudpickle(self):
        p = mr.Pipeline()
        p.filter(name="twice")(lambda x: x + x)
        with self.assertRaisesRegex(TypeError, "'twice' .* install cloudpickle"):
            list(p.run([b"x"]))

    def test_a_run_outside_of_main_is_explained(self):
        child = self.program(
            """
            import sys, multirail as mr
            sys.modules["cloudpickle"] = None
            p = mr.Pipeline()
            @p.filter()
            def same(x):
                return x
            print(list(p.run([b"x"])))
            """
        )
        self.assertIn('if __name__ == "__main__":', child.communicate(timeout=LIMIT_S)[0])
        self.assertNotEqual(child.returncode, 0)

    def test_the_example_of_the_guide(self):
        guide = (ROOT / "docs/guide/python-pipelines.md").read_text()
        (example,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
        child = self.program(example)
        expected = sum((255 - n) * 512 * 512 for n in range(100))
        self.assertEqual(child.communicate(timeout=LIMIT_S)[0], f"{expected}\n")

    def test_a_fork_is_refused(self):
        with pipeline(same) as p:
            self.assertEqual(list(p.run([b"x"])), [b"x"])
            child = os.fork()
            if child == 0:
                try:
                    p.run([b"x"]).__next__()
                except mr.Forked:
                    os._exit(7)
                finally:
                    os._exit(8)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
            self.assertEqual(list(p.run([b"x"])), [b"x"], "the child has ended no worker")


class Arrays(unittest.TestCase):
    def test_types_and_shapes_stay(self):
        inputs = [
            np.arange(24, dtype=dtype).reshape(shape)
            for dtype in ("u1", "<i8", ">f4", "c16")
            for shape in ((24,), (2, 3, 4), (4, 1, 6))
        ]
        inputs += [np.zeros((0, 5)), np.array(1.5), np.array([True, False])]
        inputs += [np.array(["2026-11-25"], "M8[s]"), np.arange(12).reshape(3, 4)[:, ::2]]
        inputs += [np.asfortranarray(np.arange(6.0).reshape(2, 3))]
        with pipeline(same) as p:
            for x, y in zip(inputs, p.run(inputs), strict=True):
                self.assertEqual((x.dtype, x.shape), (y.dtype, y.shape))
                np.testing.assert_array_equal(x, y)

    def test_a_result_can_be_written_to(self):
        with pipeline(same) as p:
            (x,) = p.run([np.zeros(1000)])
            x += 1
            self.assertEqual(x.sum(), 1000)
            self.assertFalse(x.flags.owndata, "it is not copied")
            self.assertTrue(x.flags.aligned)

    def test_other_arrays_are_refused(self):
        fields = np.zeros(2, [("a", "f4"), ("b", "i4")])
        with pipeline(same) as p:
            for x in (np.array([{}]), np.array(["text"]), fields):
                with self.subTest(x.dtype), self.assertRaisesRegex(TypeError, "dtype"):
                    list(p.run([x]))

    def test_invalid_headers_are_refused(self):
        tag, header, content = _values.encode(np.zeros((2, 3), "f4"))
        whole = header + content.tobytes()
        self.assertEqual(_values.decode(tag, whole).shape, (2, 3))
        huge = whole[:7] + b"\xff" * 16 + whole[23:]
        named = whole[:4] + b"|O\x00" + whole[7:]
        for buffer in (b"", whole[:3], whole[:20], whole[:-1], whole + b"x", huge, named):
            with self.subTest(buffer), self.assertRaises((ValueError, TypeError)):
                _values.decode(tag, buffer)
        with self.assertRaisesRegex(ValueError, "unknown tag"):
            _values.decode(7, whole)


class Daemon(unittest.TestCase):
    """Another host, which is a process of this one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "token")
        self.token = mr.Token.create_file(path)
        # It finds the functions of this file.
        paths = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
        self.daemon = subprocess.Popen(
            [*WORKER, "--listen", "127.0.0.1:0", "--token-file", path],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.addCleanup(self.daemon.stdout.close)
        self.addCleanup(self.daemon.wait, LIMIT_S)
        self.addCleanup(self.daemon.kill)
        self.address = self.daemon.stdout.readline().split()[1]

    def test_filters_on_both_hosts(self):
        with mr.Pipeline(self.token) as p:
            p.host("b", self.address)
            p.filter(copies=3, hosts=["local", "b"], stateless=True)(negative)
            p.filter(hosts=[self.address], stream=True)(lengths)
            for _ in range(2):
                self.assertEqual(list(p.run([b"abc"] * 50)), [b"150"])

    def test_failures_there(self):
        with mr.Pipeline(self.token) as p:
            p.filter(hosts=[self.address])(picky)
            with self.assertRaisesRegex(mr.FilterFailed, "no sevens") as failed:
                list(p.run(numbers(10)))
            self.assertEqual(failed.exception.host, self.address)
            self.assertFalse(failed.exception.is_lost)
        p = mr.Pipeline(mr.Token("this is another secret"))
        p.filter(hosts=[self.address])(same)
        with self.assertRaises(mr.Denied):
            list(p.run([b"x"]))
        p = mr.Pipeline()
        p.filter(hosts=[self.address])(same)
        with self.assertRaisesRegex(ValueError, "token"):
            list(p.run([b"x"]))

    def test_processes_there_end_with_the_pipeline(self):
        with mr.Pipeline(self.token) as p:
            p.filter(hosts=[self.address], stream=True)(pids)
            (pid,) = p.run([b"x"])
        wait_for_end(int(pid))

    def test_a_copy_that_is_started_again_is_reachable(self):
        with mr.Pipeline(self.token) as p:
            p.filter(hosts=[self.address])(same)
            p.filter(stream=True)(pids)
            (before,) = p.run([b"x"])
            os.kill(int(before), signal.SIGKILL)
            until = time.monotonic() + LIMIT_S
            while all(worker.is_alive() for worker in p._workers.values()):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            (after,) = p.run([b"x"])
            self.assertNotEqual(before, after)
            # On one machine, an address that only this host reaches would do, too.
            self.assertIsNotNone(p._workers["pids.0@local"]._reachable)

    def test_a_lost_host(self):
        with mr.Pipeline(self.token) as p:
            p.filter(copies=2, hosts=["local", self.address], stateless=True)(slow_with_pid)
            seen = []
            for result in p.run(numbers(200)):
                seen.append(result.split()[0])
                if len(seen) == 20:
                    self.daemon.kill()
            self.assertEqual(sorted(seen), sorted(numbers(200)))


if __name__ == "__main__":
    unittest.main()
