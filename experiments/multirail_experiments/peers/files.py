"""Copies of files from host b to host a, program beside program.

Source and target are memory file systems whose pages exist already, so networks and programs are
measured, not disks. Each copy is compared with its source by size and hash, after the time was
taken.

A program for files is a module with NAME, available(lab) and

    serving(lab, source)   a context manager: the server on host b, with all of `source` (see
                           Source); its value is a list of (line, command), where
                           command(load, target) is the command line for host a
"""

import contextlib
import hashlib
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from multirail_experiments.host import Cpu
from multirail_experiments.plan import size_bytes, size_name

# The limit of one copy.
LIMIT_S = 100
BLOCK = 1 << 20
SMALL_FOLDER, LARGE_FOLDER = "small", "large"


class Load:
    """What is copied: "1g" is one file of 1 GiB, "10000x4k" are 10,000 files of 4 KiB."""

    def __init__(self, text):
        self.text = text
        count, size = re.fullmatch(r"(?:(\d+)x)?(\d+[kmg]?)", text).groups()
        self.files, self.file_bytes = int(count or 1), size_bytes(size)
        self.folder = f"load-{text}"

    @property
    def bytes(self):
        return self.files * self.file_bytes

    @property
    def is_one(self):
        return self.files == 1

    @property
    def name(self):
        return (
            f"{size_name(self.file_bytes)}"
            if self.is_one
            else f"{self.files:,} files of {size_name(self.file_bytes)}"
        )

    @property
    def names(self):
        return [f"{number:06}" for number in range(self.files)]

    def write(self, folder):
        folder.mkdir()
        for name in self.names:
            with open(folder / name, "wb") as file:
                for start in range(0, self.file_bytes, BLOCK):
                    file.write(os.urandom(min(BLOCK, self.file_bytes - start)))

    def is_in(self, folder, wanted):
        """Whether a folder, or one inside it, has exactly these files with this content."""
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        return [path.name for path in found] == self.names and digest(found) == wanted


def digest(paths):
    whole = hashlib.blake2b()
    for path in paths:
        with open(path, "rb") as file:
            whole.update(hashlib.file_digest(file, "blake2b").digest())
    return whole.hexdigest()


class Source:
    """Loads on a memory file system, readable for servers that change their user."""

    def __init__(self, loads):
        self.loads = [Load(text) for text in loads]

    def __enter__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="multirail-source-", dir="/dev/shm"))
        self.root.chmod(0o755)
        self.targets = pathlib.Path(tempfile.mkdtemp(prefix="multirail-target-", dir="/dev/shm"))
        self.digests = {}
        try:
            for load in self.loads:
                load.write(self.root / load.folder)
                self.digests[load.text] = digest(sorted((self.root / load.folder).iterdir()))
            # Touches the targets' memory once.
            for load in self.loads:
                shutil.copytree(self.root / load.folder, self.targets / load.folder)
            for load in self.loads:
                shutil.rmtree(self.targets / load.folder)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.targets, ignore_errors=True)

    @contextlib.contextmanager
    def target(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.targets))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def copy(lab, source, load, command):
    """One copy: seconds, and CPU seconds of the whole machine meanwhile."""
    with source.target() as target:
        words = command(load, target)
        cpu, began = Cpu(), time.monotonic()
        try:
            done = lab.run("a", *words, check=False, timeout=LIMIT_S, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"took longer than {LIMIT_S} s") from None
        seconds = time.monotonic() - began
        used = cpu.take()
        if done.returncode != 0:
            raise RuntimeError(f"ended with {done.returncode}: {done.stdout.strip()[-200:]}")
        if not load.is_in(target, source.digests[load.text]):
            raise RuntimeError("the copy is not like its source")
        return seconds, used


def rows(lab, loads, tools, repeats):
    """A row for each load and line; each repeat measures all lines one after the other."""
    modules = [importlib.import_module(f"multirail_experiments.peers.{name}") for name in tools]
    with Source(loads) as source, contextlib.ExitStack() as servers:
        lines = []
        for module in modules:
            reason = module.available(lab)
            if reason is None:
                try:
                    lines += servers.enter_context(module.serving(lab, source))
                except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                    reason = str(error)
            if reason is not None:
                yield {"kind": "skipped", "line": module.NAME, "reason": reason}
        for load in source.loads:
            yield from rows_of_load(lab, source, load, lines, repeats)


def rows_of_load(lab, source, load, lines, repeats):
    measured = {line: [] for line, _ in lines}
    failed = {}
    for repeat in range(repeats):
        turn = repeat % max(len(lines), 1)
        for line, command in lines[turn:] + lines[:turn]:
            if line in failed:
                continue
            try:
                measured[line].append(copy(lab, source, load, command))
            except (RuntimeError, OSError) as error:
                failed[line] = str(error)
    for line, copies in measured.items():
        row = {
            "kind": "copy",
            "load": load.name,
            "line": line,
            "files": load.files,
            "bytes": load.bytes,
        }
        if line in failed:
            yield {**row, "kind": "skipped", "reason": f"{load.name}: {failed[line]}"}
            continue
        yield {
            **row,
            "seconds": [round(seconds, 3) for seconds, _ in copies],
            "mbit_s": [round(8e-6 * load.bytes / seconds, 2) for seconds, _ in copies],
            "cpu_s": [used["cpu_s"] for _, used in copies],
            "cpu_idle_share": round(
                sum(used["cpu_idle_share"] for _, used in copies) / len(copies), 3
            ),
        }
