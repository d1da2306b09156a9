"""Arrays between two processes of one host."""

import contextlib
import doctest
import os
import pickle
import signal
import subprocess
import sys
import unittest

import multirail as mr
import multirail.channel
import numpy as np

CALL = "import pickle, sys; call, *ends = pickle.load(sys.stdin.buffer); call(*ends)"
# Seconds that a call may take; the tests fail instead of standing still.
LIMIT_S = 30


def add_one(there, back):
    """The other process: sends back what it gets, plus 1."""
    try:
        while True:
            x = there.recv(timeout=LIMIT_S)
            y = back.empty(x.shape, x.dtype, timeout=LIMIT_S)
            np.add(x, 1, out=y)
            back.send(y)
    except mr.Closed:
        back.close()


def wait_to_be_killed(there, back):
    with contextlib.suppress(mr.Timeout):
        there.recv(timeout=0)
    back.send(b"%d" % os.getpid())
    there.recv()


class Channels(unittest.TestCase):
    def call_elsewhere(self, function, *channels):
        """Calls a function of this file in another process."""
        paths = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", CALL],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.addCleanup(process.wait, LIMIT_S)
        self.addCleanup(process.kill)
        with process.stdin as stdin:
            stdin.write(pickle.dumps((function, *channels)))
        return process

    def test_the_example(self):
        self.assertEqual(doctest.testmod(multirail.channel), (0, 6))

    def test_another_process(self):
        there, back = mr.Channel(slots=3), mr.Channel(slots=3)
        process = self.call_elsewhere(add_one, there, back)
        shapes = [(5,), (64, 2, 3), (1 << 17,), (0, 4), ()]
        for turn in range(20):
            x = np.full(shapes[turn % len(shapes)], turn, "f8")
            there.send(x, timeout=LIMIT_S)
            y = back.recv(timeout=LIMIT_S)
            self.assertEqual((y.shape, y.dtype), (x.shape, x.dtype))
            np.testing.assert_array_equal(y, x + 1)
        there.close()
        with self.assertRaises(mr.Closed):
            back.recv(timeout=LIMIT_S)
        self.assertEqual(process.wait(LIMIT_S), 0)

    def test_slots_are_free_again_when_their_values_are_dropped(self):
        channel = mr.Channel(slots=2)
        for n in range(10):
            channel.send(np.array([n]), timeout=0)
            self.assertEqual(channel.recv(timeout=0), n)
        channel.send(np.array([1]))
        channel.send(np.array([2]))
        held = channel.recv()
        with self.assertRaises(mr.Timeout):
            channel.send(np.array([3]), timeout=0.01)
        self.assertEqual(held, 1)
        del held
        channel.send(np.array([3]), timeout=0)
        self.assertEqual([int(channel.recv()[0]) for _ in range(2)], [2, 3])
        with self.assertRaises(mr.Timeout):
            channel.recv(timeout=0)
        for _ in range(3):
            channel.empty(5, "u1", timeout=0)

    def test_an_array_of_the_channel_is_not_copied(self):
        channel = mr.Channel(slots=1)
        x = channel.empty((2, 3), "i4")
        x[:] = [[1, 2, 3], [4, 5, 6]]
        # Another array would wait for the only slot.
        channel.send(x, timeout=0)
        y = channel.recv()
        np.testing.assert_array_equal(y, x)
        self.assertEqual(x.ctypes.data, y.ctypes.data)
        with self.assertRaisesRegex(ValueError, "sent already"):
            channel.send(x)
        del x, y
        z = mr.Channel(slots=2).empty(6, "i4")
        z[:] = 7
        channel.send(z[::2])
        np.testing.assert_array_equal(channel.recv(), [7, 7, 7])

    def test_a_closed_channel(self):
        channel = mr.Channel()
        channel.send(b"x")
        channel.close()
        with self.assertRaises(mr.Closed):
            channel.send(b"y")
        self.assertEqual(channel.recv(), b"x")
        with self.assertRaises(mr.Closed):
            channel.recv()

    def test_bytes_and_limits(self):
        channel = mr.Channel(value_bytes=1000)
        channel.send(b"x" * 1000)
        self.assertEqual(channel.recv(), b"x" * 1000)
        with self.assertRaisesRegex(ValueError, "raise value_bytes"):
            channel.send(bytes(1 << 20))
        with self.assertRaisesRegex(ValueError, "raise value_bytes"):
            channel.empty(1 << 20, "f4")
        with self.assertRaises(TypeError):
            channel.send({})
        with self.assertRaises(OSError):
            mr.Channel(slots=65)
        with self.assertRaises(OSError):
            mr.Channel(slots=0)

    def test_the_end_of_the_other_process(self):
        there, back = mr.Channel(), mr.Channel()
        process = self.call_elsewhere(wait_to_be_killed, there, back)
        pid = int(back.recv(timeout=LIMIT_S))
        os.kill(pid, signal.SIGKILL)
        process.wait(LIMIT_S)
        with self.assertRaisesRegex(mr.Lost, f"process {pid}"):
            for _ in range(20):
                there.send(b"x", timeout=LIMIT_S)


if __name__ == "__main__":
    unittest.main()
