"""Sessions: messages of all kinds, limits, threads, and how they end."""

import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import multirail as mr
import numpy as np
from hosts import LIMIT_S, TOKEN, Relay, in_thread, pair


class Tensor:
    """Memory that only DLPack gives away."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Messages(unittest.TestCase):
    def test_messages_arrive_as_they_were_sent(self):
        seed = int(os.environ.get("MULTIRAIL_TEST_SEED", random.randrange(1 << 32)))
        rng = random.Random(seed)
        sizes = [0, 1, 8, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 5 << 20]
        sizes += [rng.randrange(1 << 20) for _ in range(20)]
        messages = [rng.randbytes(size) for size in sizes]
        with pair() as (one, other):
            sent = in_thread(lambda: [one.send(message) for message in messages])
            for index, message in enumerate(messages):
                self.assertEqual(other.recv(), message, f"seed {seed}, message {index}")
            sent()

    def test_arrays_are_received_in_their_place(self):
        array = np.arange(3 << 18, dtype="f4").reshape(3, 512, 512)
        with pair() as (one, other):
            sent = in_thread(lambda: one.send(array))
            received = np.zeros_like(array)
            self.assertEqual(other.recv_into(received), array.nbytes)
            sent()
            np.testing.assert_array_equal(received, array)

    def test_a_slice_without_gaps_is_sent_and_received(self):
        rows = np.arange(100, dtype="u1").reshape(10, 10)
        with pair() as (one, other):
            one.send(rows[2:4])
            received = np.zeros((10, 10), "u1")
            self.assertEqual(other.recv_into(received[5:7]), 20)
            np.testing.assert_array_equal(received[5:7], rows[2:4])
            self.assertEqual(received.sum(), rows[2:4].sum())

    def test_tensors_of_dlpack_are_sent_and_received(self):
        array = np.arange(1 << 16, dtype="i8")
        with pair() as (one, other):
            received = np.zeros_like(array)
            sent = in_thread(lambda: one.send(Tensor(array)))
            other.recv_into(Tensor(received))
            sent()
            np.testing.assert_array_equal(received, array)
            with self.assertRaisesRegex(BufferError, "strides"):
                one.send(Tensor(array[::2]))

    def test_both_directions_at_once(self):
        with pair() as (one, other):
            large = os.urandom(8 << 20)
            waits = [in_thread(lambda end=end: end.send(large)) for end in (one, other)]
            self.assertEqual(one.recv(), large)
            self.assertEqual(other.recv(), large)
            for wait in waits:
                wait()

    def test_rails_and_stats_tell_what_was_moved(self):
        with pair() as (one, other):
            one.send(bytes(1000))
            other.recv()
            self.assertEqual(one.stats().sent_bytes, 1000)
            self.assertEqual(other.stats().received_bytes, 1000)
            rail = one.rails()[0]
            self.assertTrue(rail.remote.startswith("127.0.0.1:"), rail)
            self.assertEqual(sum(rail.sent_bytes for rail in one.rails()), 1000)


class BadInput(unittest.TestCase):
    def test_a_message_that_does_not_fit_stays(self):
        for size in (100, 100_000):
            with self.subTest(size=size), pair() as (one, other):
                message = os.urandom(size)
                sent = in_thread(lambda one=one, message=message: one.send(message))
                small = bytearray(99)
                with self.assertRaises(mr.TooLong) as raised:
                    other.recv_into(small)
                self.assertIn(str(size), str(raised.exception))
                self.assertEqual(small, bytes(99), "nothing was written")
                with self.assertRaises(mr.TooLong):
                    other.recv(max_bytes=99)
                self.assertEqual(other.recv(), message)
                sent()
                other.send(b"the session goes on")
                self.assertEqual(one.recv(), b"the session goes on")

    def test_memory_that_cannot_be_used(self):
        with pair() as (one, other):
            array = np.zeros((4, 4))
            with self.assertRaisesRegex(BufferError, r"shape .4, 2. has strides"):
                one.send(array[:, ::2])
            with self.assertRaisesRegex(BufferError, "read-only"):
                one.recv_into(b"12345678")
            array.flags.writeable = False
            with self.assertRaisesRegex(BufferError, "read-only"):
                one.recv_into(array)
            for nothing in ("text", 5, None):
                with self.assertRaisesRegex(TypeError, type(nothing).__name__):
                    one.send(nothing)
            one.send(b"the session goes on")
            self.assertEqual(other.recv(), b"the session goes on")

    def test_arguments(self):
        with self.assertRaisesRegex(ValueError, "timeout=-1"):
            mr.connect("127.0.0.1:1", token=TOKEN, timeout=-1)
        with self.assertRaisesRegex(ValueError, "cannot listen on"):
            mr.listen("nonsense:here", token=TOKEN)
        with self.assertRaises(TypeError):
            mr.connect("127.0.0.1:1")

    def test_tokens(self):
        with self.assertRaises(mr.TokenError):
            mr.Token("short")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")
            with self.assertRaises(FileNotFoundError) as raised:
                mr.Token.from_file(path)
            self.assertEqual(os.fspath(raised.exception.filename), path)
            mr.Token.create_file(path)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            os.chmod(path, 0o644)
            with self.assertRaisesRegex(mr.TokenError, path):
                mr.Token.from_file(path)

    def test_errors_have_their_class_and_host(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            with self.assertRaises(mr.Refused) as raised:
                mr.connect(address, token=TOKEN)
            self.assertEqual(raised.exception.host, address)
            self.assertIn(address, str(raised.exception))
            self.assertIsInstance(raised.exception, ConnectionError)
        with mr.listen("127.0.0.1:0", token=TOKEN) as listener:
            accept = in_thread(lambda: listener.accept(timeout=1))
            with self.assertRaises(mr.Denied):
                mr.connect(listener.address, token=mr.Token("another secret of a test"))
            with self.assertRaises(mr.Timeout):
                accept()

    def test_errors_have_the_rail_that_is_the_cause(self):
        with mr.listen("127.0.0.1:0", token=TOKEN) as listener:
            for rails, rail in (("eth9", "eth9"), ("eth8,eth9", None), ("!lo", None)):
                accepted = in_thread(lambda: listener.accept(timeout=LIMIT_S))
                with self.subTest(rails=rails), self.assertRaises(mr.Refused) as raised:
                    mr.connect(listener.address, token=TOKEN, rails=rails)
                self.assertEqual(raised.exception.rail, rail)
                self.assertEqual(raised.exception.host, listener.address)
                self.assertIn(rail or "the filter", str(raised.exception))
                accepted().abandon()

    def test_the_loss_of_the_only_rail_names_it(self):
        with mr.listen("127.0.0.1:0", token=TOKEN) as listener, Relay(listener.address) as relay:
            accepted = in_thread(lambda: listener.accept(timeout=LIMIT_S))
            session = mr.connect(relay.address, token=TOKEN, give_up_after=1)
            peer = accepted()
            relay.cut()
            with self.assertRaisesRegex(mr.Lost, "rails") as raised:
                session.recv()
            self.assertEqual((raised.exception.rail, raised.exception.host), ("lo", relay.address))
            for end in (session, peer):
                end.abandon()

    def test_errors_survive_pickling(self):
        report = object.__new__(mr.Report)
        for error in (
            mr.Refused("it refused", "b:7717"),
            mr.FilterFailed("it failed", "b", "filter", 1),
            mr.CopyFailed("it failed", "b", report),
        ):
            error.rail = "eth1"
            error.is_lost = True
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again)), (type(error), str(error)))
            self.assertEqual(vars(again).keys(), vars(error).keys())
            for name in ("host", "rail", "filter", "copy", "is_lost"):
                self.assertEqual(getattr(again, name, None), getattr(error, name, None))


class Ends(unittest.TestCase):
    def test_the_end_is_told_from_a_loss(self):
        with pair() as (one, other):
            one.send(b"the last one")
            closed = in_thread(one.close)
            self.assertEqual(other.recv(), b"the last one")
            with self.assertRaises(mr.Closed):
                other.recv()
            closed()
            for call in (lambda: one.send(b""), one.recv):
                with self.assertRaises(mr.Closed):
                    call()

    def test_close_ends_a_call_of_another_thread(self):
        with pair() as (one, _other):
            received = in_thread(one.recv)
            time.sleep(0.1)
            one.close()
            with self.assertRaises(mr.Closed):
                received()

    def test_a_listener_that_is_closed_ends_accept(self):
        listener = mr.listen("127.0.0.1:0", token=TOKEN)
        accepted = in_thread(listener.accept)
        time.sleep(0.1)
        listener.close()
        with self.assertRaises(mr.Closed):
            accepted()

    def test_a_killed_peer_is_lost(self):
        script = (
            "import sys, multirail as mr\n"
            "s = mr.connect(sys.argv[1], token=mr.Token('a secret for these tests'))\n"
            "s.send(b'here'); s.recv()\n"
        )
        with mr.listen("127.0.0.1:0", token=TOKEN) as listener:
            peer = subprocess.Popen([sys.executable, "-c", script, listener.address])
            try:
                session = listener.accept(timeout=LIMIT_S)
                self.assertEqual(session.recv(), b"here")
            finally:
                peer.kill()
                peer.wait()
            with self.assertRaises(mr.Lost):
                session.recv()
            session.abandon()

    def test_ctrl_c_ends_a_call(self):
        script = (
            "import multirail as mr\n"
            "listener = mr.listen('127.0.0.1:0', token=mr.Token('a secret for these tests'))\n"
            "print('waits', flush=True)\n"
            "listener.accept()\n"
        )
        command = [sys.executable, "-c", script]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self.assertEqual(process.stdout.readline(), "waits\n")
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
            process.communicate()
        self.assertIn("KeyboardInterrupt", errors)

    def test_other_threads_run_while_a_call_waits(self):
        with pair() as (one, other):
            received = in_thread(other.recv)
            counted = sum(1 for _ in range(100_000))
            one.send(str(counted).encode())
            self.assertEqual(received(), b"100000")

    def test_an_abandoned_session_is_over_for_the_peer(self):
        with pair() as (one, other):
            received = in_thread(other.recv)
            one.abandon("the reason")
            with self.assertRaisesRegex(mr.Lost, "the reason"):
                received()

    def test_an_exchange_sends_and_receives(self):
        exchange = mr._multirail.exchange
        with pair() as (one, other):
            # Neither end receives before it has sent a message that waits for the receiver.
            large, into = os.urandom(1 << 20), bytearray(1 << 20)
            answered = in_thread(lambda: exchange(other, large, other, bytearray(1 << 20), LIMIT_S))
            self.assertEqual(exchange(one, bytes(1 << 20), one, into), 1 << 20)
            self.assertEqual((answered(), into), (1 << 20, large))
            with self.assertRaisesRegex(mr.Timeout, "no message has come"):
                exchange(None, None, one, into, 0)
            other.send(bytes(100))
            with self.assertRaises(mr.TooLong):
                exchange(one, b"small", one, bytearray(10), LIMIT_S)
            self.assertEqual((len(one.recv()), other.recv()), (100, b"small"))

    def test_a_forked_process_is_refused(self):
        with pair() as (one, other):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                # Nothing of the test may run twice.
                said = "another exception"
                try:
                    one.send(b"from the child")
                    said = "it was sent"
                except mr.Forked as error:
                    said = f"refused: {error}"
                finally:
                    os.write(writer, said.encode())
                    os._exit(0)
            os.close(writer)
            os.waitpid(child, 0)
            said = os.read(reader, 1000).decode()
            os.close(reader)
            self.assertRegex(said, "^refused: .*forked")
            one.send(b"from the parent")
            self.assertEqual(other.recv(), b"from the parent")


if __name__ == "__main__":
    unittest.main()
