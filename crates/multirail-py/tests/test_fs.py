"""`mr://` for fsspec: what it reads and writes, with pandas, and what it refuses."""

import concurrent.futures
import os
import pickle
import socket
import subprocess
import sys
import unittest

import multirail as mr
from folders import Served
from hosts import TOKEN

try:
    import fsspec
except ImportError:
    raise unittest.SkipTest("pypi: fsspec is not installed") from None


class Files(Served):
    def setUp(self):
        super().setUp()
        self.fs = fsspec.filesystem("mr", host=self.server.address, token=TOKEN)

    def test_a_url_of_fsspec_finds_it(self):
        with fsspec.open(f"{self.url}/file", "wb", token=TOKEN) as file:
            file.write(b"content")
        self.assertEqual((self.served / "file").read_bytes(), b"content")
        fs, path = fsspec.core.url_to_fs(f"{self.url}/a/b/", token=TOKEN)
        self.assertEqual((path, fs.host), ("a/b", self.server.address))
        self.assertEqual(fs.unstrip_protocol(path), f"{self.url}/a/b")

    def test_ranges(self):
        content = os.urandom(6 << 20)
        (self.served / "file").write_bytes(content)
        for start, end in (
            (None, None),
            (0, 10),
            (5, None),
            (None, -5),
            (-5, None),
            (-10, -5),
            (10, 5),
            (len(content) - 1, len(content) + 9),
            (len(content) + 1, None),
        ):
            with self.subTest(start=start, end=end):
                self.assertEqual(self.fs.cat_file("file", start, end), content[start:end])
        with self.fs.open("file", block_size=1 << 16) as file:
            file.seek(-100, os.SEEK_END)
            self.assertEqual(file.read(1000), content[-100:])
            file.seek(3 << 20)
            self.assertEqual(file.read(10), content[3 << 20 :][:10])

    def test_entries(self):
        self.fs.makedirs("a/b")
        self.fs.pipe({"a/b/x": b"1", "a/y": b"22"})
        (self.served / "a/link").symlink_to("y")
        (self.served / "a/lost").symlink_to("nowhere")
        entries = {entry["name"]: entry for entry in self.fs.ls("a")}
        self.assertEqual(list(entries), ["a/b", "a/link", "a/lost", "a/y"])
        self.assertEqual(
            [entry["type"] for entry in entries.values()], ["directory", "file", "other", "file"]
        )
        self.assertEqual((entries["a/y"]["size"], entries["a/link"]["islink"]), (2, True))
        self.assertEqual(self.fs.ls("a/y", detail=False), ["a/y"])
        self.assertEqual(self.fs.find(""), ["a/b/x", "a/link", "a/lost", "a/y"])
        self.assertEqual(self.fs.glob("a/*/x"), ["a/b/x"])
        self.assertAlmostEqual(
            self.fs.modified("a/y").timestamp(), (self.served / "a/y").stat().st_mtime, 3
        )
        self.assertTrue(self.fs.isdir("a") and self.fs.isfile("a/y") and self.fs.exists("a"))
        self.assertFalse(self.fs.isdir("a/y") or self.fs.isfile("a") or self.fs.exists("a/y/z"))

    def test_a_file_appears_when_it_is_closed(self):
        (self.served / "file").write_bytes(b"old")
        with self.fs.open("file", "wb", block_size=1 << 16) as file:
            file.write(bytes(1 << 20))
            file.flush()
            self.assertEqual((self.served / "file").read_bytes(), b"old")
        self.assertEqual((self.served / "file").read_bytes(), bytes(1 << 20))
        with self.assertRaises(ArithmeticError), self.fs.open("file", "wb") as file:
            file.write(b"not all of it")
            raise ArithmeticError
        self.assertEqual((self.served / "file").read_bytes(), bytes(1 << 20))
        with self.fs.open("text", "w") as file:
            file.write("über")
        self.assertEqual((self.served / "text").read_text(encoding="utf-8"), "über")
        self.assertEqual((self.served / "text").stat().st_mode & 0o777, 0o644)

    def test_trees_there_and_back(self):
        (self.folder / "a/b").mkdir(parents=True)
        (self.folder / "a/b/file").write_bytes(os.urandom(1 << 20))
        self.fs.put(str(self.folder / "a"), "up", recursive=True)
        self.fs.get("up", str(self.folder / "back"), recursive=True)
        self.assertEqual(self.names(self.folder / "back"), ["b", "b/file"])
        self.assertEqual(
            (self.folder / "back/b/file").read_bytes(), (self.folder / "a/b/file").read_bytes()
        )
        self.fs.rm("up", recursive=True)
        self.assertEqual(self.names(self.served), [])

    def test_errors_are_those_of_files(self):
        self.fs.makedirs("a/b")
        self.fs.pipe("a/file", b"x")
        (self.served / "out").symlink_to(self.folder)
        (self.folder / "secret").write_text("s")
        local = str(self.folder / "secret")
        for error, call in (
            (FileNotFoundError, lambda: self.fs.info("none")),
            (FileNotFoundError, lambda: self.fs.ls("none")),
            (FileNotFoundError, lambda: self.fs.open("none")),
            (FileNotFoundError, lambda: self.fs.cat_file("none")),
            (FileNotFoundError, lambda: self.fs.open("none/file", "wb")),
            (FileNotFoundError, lambda: self.fs.rm("none")),
            (FileNotFoundError, lambda: self.fs.get_file("none", local)),
            (FileNotFoundError, lambda: self.fs.put_file(f"{local}-none", "x")),
            (FileExistsError, lambda: self.fs.mkdir("a")),
            (FileExistsError, lambda: self.fs.makedirs("a/b")),
            (FileExistsError, lambda: self.fs.open("a/file", "xb")),
            (FileExistsError, lambda: self.fs.put_file(local, "a/file", mode="create")),
            (IsADirectoryError, lambda: self.fs.open("a")),
            (IsADirectoryError, lambda: self.fs.open("a", "wb")),
            (IsADirectoryError, lambda: self.fs.rm("a")),
            (IsADirectoryError, lambda: self.fs.cat_file("a")),
            (NotADirectoryError, lambda: self.fs.rmdir("a/file")),
            (OSError, lambda: self.fs.rmdir("a")),
            (ValueError, lambda: self.fs.open("a/file", "ab")),
            (PermissionError, lambda: self.fs.info("../here/secret")),
            (PermissionError, lambda: self.fs.cat_file("out/secret")),
            (PermissionError, lambda: self.fs.rm("out/secret")),
            (PermissionError, lambda: self.fs.rm("", recursive=True)),
        ):
            with self.subTest(error=error.__name__), self.assertRaises(error):
                call()
        with self.assertRaises(FileNotFoundError) as raised:
            self.fs.info("a/none")
        self.assertEqual(raised.exception.filename, f"{self.url}/a/none")
        self.assertEqual(self.names(self.served), ["a", "a/b", "a/file", "out"])
        self.assertEqual(self.names(self.folder), ["secret"])

    def test_tokens_and_hosts(self):
        with self.assertRaisesRegex(mr.TokenError, "token_file="):
            fsspec.filesystem("mr", host="b")
        wrong = fsspec.filesystem(
            "mr", host=self.server.address, token=mr.Token("a secret of another one")
        )
        with self.assertRaises(mr.Denied):
            wrong.exists("file")
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            with self.assertRaises(mr.Refused):
                fsspec.filesystem("mr", host=address, token=TOKEN).ls("")

    def test_many_threads(self):
        for number in range(20):
            (self.served / str(number)).write_text(str(number))
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            read = list(threads.map(self.fs.cat_file, map(str, range(20))))
        self.assertEqual(read, [str(number).encode() for number in range(20)])

    def test_a_server_that_comes_back(self):
        (self.served / "file").write_text("x")
        self.assertTrue(self.fs.exists("file"))
        address = self.server.address
        self.server.close()
        with mr.serve(self.served, address, token=TOKEN):
            self.assertEqual(self.fs.cat_file("file"), b"x")
            self.fs.mkdir("made")

    def test_another_process_reads_the_token_file(self):
        (self.served / "file").write_text("x")
        with self.assertRaisesRegex(TypeError, "token_file="):
            pickle.dumps(self.fs)
        secret = self.folder / "token"
        secret.write_text("a secret for these tests")
        secret.chmod(0o600)
        fs = fsspec.filesystem("mr", host=self.server.address, token_file=str(secret))
        script = "import pickle, sys; fs = pickle.load(sys.stdin.buffer); print(fs.cat('file'))"
        done = subprocess.run(
            [sys.executable, "-c", script], input=pickle.dumps(fs), capture_output=True, check=True
        )
        self.assertEqual(done.stdout, b"b'x'\n")

    def test_a_forked_process_is_refused(self):
        self.assertEqual(self.fs.ls(""), [])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.fs.ls("")
            except mr.Forked:
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Pandas(Served):
    def setUp(self):
        super().setUp()
        try:
            import pandas
        except ImportError:
            self.skipTest("pypi: pandas is not installed")
        self.table = pandas.DataFrame({"a": range(10_000), "b": [n / 7 for n in range(10_000)]})
        self.pandas = pandas
        self.options = {"token": TOKEN}

    def test_csv(self):
        self.table.to_csv(f"{self.url}/x.csv", index=False, storage_options=self.options)
        back = self.pandas.read_csv(f"{self.url}/x.csv", storage_options=self.options)
        self.pandas.testing.assert_frame_equal(back, self.table)

    def test_parquet(self):
        try:
            import pyarrow.dataset
            import pyarrow.parquet
        except ImportError:
            self.skipTest("pypi: pyarrow is not installed")
        url = f"{self.url}/x.parquet"
        self.table.to_parquet(url, storage_options=self.options)
        back = self.pandas.read_parquet(url, columns=["b"], storage_options=self.options)
        self.pandas.testing.assert_frame_equal(back, self.table[["b"]])
        fs = fsspec.filesystem("mr", host=self.server.address, **self.options)
        table = pyarrow.Table.from_pandas(self.table)
        pyarrow.dataset.write_dataset(table, "set", format="parquet", filesystem=fs)
        read = pyarrow.dataset.dataset("set", filesystem=fs).to_table()
        self.assertEqual(read.num_rows, 10_000)


if __name__ == "__main__":
    unittest.main()
