"""Copies, broadcasts and servers: what arrives, what they report, and how they end."""

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
import unittest
from unittest import mock

import multirail as mr
from folders import Served
from hosts import LIMIT_S, TOKEN, in_thread

SERVER = """
import sys, multirail as mr
with mr.serve(sys.argv[1], "127.0.0.1:0", token=mr.Token("a secret for these tests")) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""

COPY = """
import sys, multirail as mr
def tell(done, total):
    if done:
        print("moves", flush=True)
mr.cp(sys.argv[1], sys.argv[2], token=mr.Token("a secret for these tests"), progress=tell)
"""


class Copies(Served):
    def test_a_tree_there_and_back(self):
        (self.folder / "a/b").mkdir(parents=True)
        content = os.urandom(5 << 20)
        (self.folder / "a/b/file").write_bytes(content)
        (self.folder / "a/empty").write_bytes(b"")
        report = mr.cp(self.folder / "a", f"{self.url}/", token=TOKEN, recursive=True)
        self.assertEqual((report.files, report.bytes, report.failures), (2, len(content), []))
        report = mr.cp(f"{self.url}/a", self.folder / "back", token=TOKEN, recursive=True)
        self.assertEqual((report.files, report.failed_count), (2, 0))
        self.assertEqual((self.folder / "back/a/b/file").read_bytes(), content)
        again = mr.cp(f"{self.url}/a", self.folder / "back", token=TOKEN, recursive=True)
        self.assertEqual((again.files, again.unchanged), (0, 2))

    def test_several_sources(self):
        for name in "xy":
            (self.folder / name).write_text(name)
        mr.cp([self.folder / "x", str(self.folder / "y")], f"{self.url}/both/", token=TOKEN)
        self.assertEqual(self.names(self.served), ["both", "both/x", "both/y"])
        sources = [f"{self.url}/both/x", f"{self.url}/both/y"]
        self.assertEqual(mr.cp(sources, self.folder / "to", token=TOKEN).files, 2)

    def test_checksum_finds_a_change_that_the_time_hides(self):
        file = self.folder / "file"
        file.write_text("one")
        mr.cp(file, f"{self.url}/", token=TOKEN)
        there = self.served / "file"
        times = there.stat()
        there.write_text("two")
        os.utime(there, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assertEqual(mr.cp(file, f"{self.url}/", token=TOKEN).unchanged, 1)
        self.assertEqual(mr.cp(file, f"{self.url}/", token=TOKEN, checksum=True).files, 1)
        self.assertEqual(there.read_text(), "one")

    def test_progress_ends_with_all_bytes(self):
        (self.folder / "file").write_bytes(bytes(3 << 20))
        told = []
        mr.cp(
            self.folder / "file",
            f"{self.url}/",
            token=TOKEN,
            progress=lambda done, total: told.append((done, total)),
        )
        self.assertEqual(told[-1], (3 << 20, 3 << 20))

    def test_an_exception_of_progress_ends_the_copy(self):
        def tell(_done, _total):
            raise ArithmeticError("enough")

        with self.assertRaisesRegex(ArithmeticError, "enough"):
            mr.cp(self.long_file(), f"{self.url}/", token=TOKEN, progress=tell)
        self.assertNotIn("long", self.names(self.served))

    def test_a_bar_needs_tqdm(self):
        (self.folder / "file").write_text("x")
        with (
            mock.patch.dict(sys.modules, tqdm=None),
            self.assertRaisesRegex(ImportError, "pip install tqdm"),
        ):
            mr.cp(self.folder / "file", f"{self.url}/", token=TOKEN, progress=True)
        self.assertEqual(self.names(self.served), [])

    def test_a_bar(self):
        try:
            import tqdm
        except ImportError:
            self.skipTest("pypi: tqdm is not installed")
        (self.folder / "file").write_bytes(bytes(1 << 20))
        with mock.patch.object(tqdm.tqdm, "refresh", autospec=True) as refresh:
            mr.cp(self.folder / "file", f"{self.url}/", token=TOKEN, progress=True)
        bar = refresh.call_args.args[0]
        self.assertEqual((bar.n, bar.total), (1 << 20, 1 << 20))


class CopyErrors(Served):
    def test_what_is_missing_is_named(self):
        (self.folder / "file").write_text("x")
        sources = [self.folder / "file", self.folder / "none"]
        with self.assertRaisesRegex(mr.CopyFailed, "none: No such file") as raised:
            mr.cp(sources, f"{self.url}/", token=TOKEN)
        report = raised.exception.report
        self.assertEqual((report.files, report.failed_count), (1, 1))
        self.assertEqual((report.failures[0].path, report.failures[0].host), ("none", None))
        self.assertEqual(self.names(self.served), ["file"], "the other one is copied")
        with self.assertRaisesRegex(mr.CopyFailed, "the server could not read nothing") as raised:
            mr.cp(f"{self.url}/nothing", self.folder, token=TOKEN)
        self.assertEqual(raised.exception.host, self.server.address)
        again = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual(again.report, raised.exception.report)

    def test_destinations_that_are_refused(self):
        (self.folder / "file").write_text("x")
        for path, why in (
            ("no/such/file", "no directory"),
            ("../file", r"`\.\.`"),
            ("/etc", "abs"),
        ):
            with self.subTest(path), self.assertRaisesRegex(mr.CopyFailed, why) as raised:
                mr.cp(self.folder / "file", f"{self.url}/{path}", token=TOKEN)
            self.assertEqual(raised.exception.host, self.server.address)
            self.assertIsNone(raised.exception.report)
        (self.served / "out").symlink_to(self.folder)
        with self.assertRaisesRegex(mr.CopyFailed, "leads out of the folder"):
            mr.cp(self.folder / "file", f"{self.url}/out/x", token=TOKEN)
        with self.assertRaisesRegex(mr.CopyFailed, "no/such: No such file or directory"):
            mr.cp(f"{self.url}/file", self.folder / "no/such/file", token=TOKEN)

    def test_sides_that_cannot_be_used(self):
        for source, destination, why in (
            ("a", "b", "neither side is remote"),
            ("mr://a/b", "mr://c/d", "both sides are remote"),
            (["mr://a/b", "mr://c/d"], "e", "several hosts"),
            (["mr://a/b", "d"], "e", "several hosts"),
            ([], "mr://a/b", "no sources"),
            ("mr:/a/b", "c", "pathlib.Path removes a slash"),
            ("mr:///b", "c", "write mr://HOST"),
            ("mr://a:x/b", "c", "a port from 1"),
            ("mr://[::1/b", "c", "write mr://HOST"),
            (["a/x", "b/x"], self.url, "two sources are called x"),
        ):
            with self.subTest(source=source), self.assertRaisesRegex(ValueError, why):
                mr.cp(source, destination, token=TOKEN)

    def test_tokens_and_hosts(self):
        file = self.folder / "file"
        file.write_text("x")
        with self.assertRaisesRegex(mr.TokenError, "pass token="):
            mr.cp(file, self.url, token=None)
        with self.assertRaises(mr.Denied) as raised:
            mr.cp(file, self.url, token=mr.Token("a secret of another one"))
        self.assertEqual(raised.exception.host, self.server.address)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            with self.assertRaises(mr.Refused) as raised:
                mr.cp(file, f"mr://{address}/", token=TOKEN)
            self.assertEqual(raised.exception.host, address)


class Broadcasts(Served):
    def setUp(self):
        super().setUp()
        self.others = []
        for number in range(2):
            other = self.served.with_name(f"served{number}")
            other.mkdir()
            self.others.append((other, self.serve(other)))
        self.hosts = [self.server.address, *(server.address for _, server in self.others)]
        self.content = os.urandom(3 << 20)
        (self.folder / "file").write_bytes(self.content)

    def test_all_hosts_get_the_file(self):
        told = []
        summary = mr.bcast(
            self.folder / "file",
            "models/",
            self.hosts,
            token=TOKEN,
            progress=lambda *now: told.append(now),
        )
        self.assertEqual(summary.bytes, len(self.content))
        self.assertEqual([host.host for host in summary.hosts], self.hosts)
        self.assertTrue(all(host.complete and host.reason is None for host in summary.hosts))
        for folder in (self.served, *(folder for folder, _ in self.others)):
            self.assertEqual((folder / "models/file").read_bytes(), self.content)
        self.assertEqual(told[-1], (3 * len(self.content),) * 2)

    def test_clusters_that_are_given(self):
        clusters = [f"{host} cluster={name}" for host, name in zip(self.hosts, "aab", strict=True)]
        summary = mr.bcast(self.folder / "file", "file", [*clusters, "self cluster=a"], token=TOKEN)
        self.assertEqual(summary.bytes_between_clusters, len(self.content))
        self.assertEqual(len({host.cluster for host in summary.hosts}), 2)

    def test_a_host_that_is_missing_is_named(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            missing = f"127.0.0.1:{unused.getsockname()[1]}"
            with self.assertRaisesRegex(mr.BroadcastFailed, f"1 of 4 .*{missing}") as raised:
                mr.bcast(self.folder / "file", "file", [*self.hosts, missing], token=TOKEN)
        summary = raised.exception.summary
        self.assertEqual([host.complete for host in summary.hosts], [True] * 3 + [False])
        self.assertEqual(raised.exception.host, missing)
        self.assertEqual(pickle.loads(pickle.dumps(raised.exception)).summary, summary)

    def test_arguments(self):
        file = self.folder / "file"
        for hosts, to, why in (
            ([], "x", "no hosts"),
            (["b", "b"], "x", "already"),
            (["b:x"], "x", "not a host"),
            (["b"], "/x", "remove the first slash"),
        ):
            with self.subTest(hosts=hosts), self.assertRaisesRegex(ValueError, why):
                mr.bcast(file, to, hosts, token=TOKEN)
        with self.assertRaises(FileNotFoundError):
            mr.bcast(self.folder / "none", "x", self.hosts, token=TOKEN)
        with self.assertRaisesRegex(IsADirectoryError, "recursive=True"):
            mr.bcast(self.folder, "x", self.hosts, token=TOKEN)
        with self.assertRaisesRegex(mr.BroadcastFailed, "token"):
            mr.bcast(file, "x", self.hosts, token=mr.Token("a secret of another one"))


class Servers(Served):
    def test_a_folder_that_is_missing(self):
        with self.assertRaises(FileNotFoundError):
            mr.serve(self.folder / "none", token=TOKEN)
        with self.assertRaises(mr.MultirailError):
            mr.serve(self.folder, self.server.address, token=TOKEN)

    def test_a_closed_server_accepts_nothing(self):
        (self.folder / "file").write_text("x")
        with mr.serve(self.served, "127.0.0.1:0", token=TOKEN) as server:
            mr.cp(self.folder / "file", f"mr://{server.address}/", token=TOKEN)
        with self.assertRaises(mr.Refused):
            mr.cp(self.folder / "file", f"mr://{server.address}/", token=TOKEN)
        server.close()

    def test_a_closed_server_leaves_other_sessions_alone(self):
        with mr.listen("127.0.0.1:0", token=TOKEN) as listener:
            accepted = in_thread(lambda: listener.accept(timeout=LIMIT_S))
            with mr.connect(listener.address, token=TOKEN) as one:
                other = accepted()
                self.server.close()
                one.send(b"still there")
                self.assertEqual(other.recv(), b"still there")
                closed = in_thread(other.close)
            closed()


class Ends(Served):
    def start(self, script, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def test_ctrl_c_ends_a_copy(self):
        copy = self.start(COPY, self.long_file(), f"{self.url}/")
        self.assertEqual(copy.stdout.readline(), "moves\n")
        copy.send_signal(signal.SIGINT)
        _, errors = copy.communicate(timeout=LIMIT_S)
        self.assertIn("KeyboardInterrupt", errors)
        self.assertNotIn("long", self.names(self.served))

    def test_a_server_that_dies_is_lost(self):
        served = self.served.with_name("dies")
        served.mkdir()
        server = self.start(SERVER, served)
        address = server.stdout.readline().strip()

        def tell(done, _total):
            if done:
                server.kill()

        with self.assertRaises(mr.Lost) as raised:
            mr.cp(self.long_file(), f"mr://{address}/", token=TOKEN, progress=tell)
        self.assertEqual(raised.exception.host, address)

    def test_a_forked_process_is_refused(self):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                mr.cp(self.folder, self.url, token=TOKEN, recursive=True)
            except mr.Forked:
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Aio(Served):
    def test_the_loop_runs_while_a_copy_does(self):
        (self.folder / "file").write_bytes(bytes(8 << 20))
        told = []

        async def copy():
            await asyncio.gather(
                mr.aio.cp(
                    self.folder / "file",
                    f"{self.url}/one",
                    token=TOKEN,
                    progress=lambda *now: told.append(now),
                ),
                mr.aio.cp(self.folder / "file", f"{self.url}/two", token=TOKEN),
                mr.aio.bcast(self.folder / "file", "three", [self.server.address], token=TOKEN),
            )

        asyncio.run(copy())
        self.assertEqual(self.names(self.served), ["one", "three", "two"])
        self.assertEqual(told[-1], (8 << 20, 8 << 20))

    def test_a_cancelled_copy_ends(self):
        async def copy():
            begun = asyncio.Event()
            copying = asyncio.create_task(
                mr.aio.cp(
                    self.long_file(),
                    f"{self.url}/",
                    token=TOKEN,
                    progress=lambda *_now: begun.set(),
                )
            )
            await begun.wait()
            copying.cancel()
            await copying

        with self.assertRaises(asyncio.CancelledError):
            asyncio.run(copy())
        self.assertNotIn("long", self.names(self.served))

    def test_errors(self):
        with self.assertRaises(mr.CopyFailed):
            asyncio.run(mr.aio.cp(f"{self.url}/none", self.folder, token=TOKEN))


if __name__ == "__main__":
    unittest.main()
