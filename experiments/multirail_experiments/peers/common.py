"""Shared by several peers: programs of experiments/c, clients that stay up, rows of repeats."""

import contextlib
import json
import os
import queue
import re
import shutil
import subprocess
import threading

from multirail_experiments.paths import HOME, TARGET
from multirail_experiments.plan import size_name

# Fields with one value a repeat, where a program reports them.
FIELDS = ("effective_mbit_s", "rtt_us_mean", "rtt_us_p99", "rounds", "cpu_s_per_gib")
# The limit of one measurement of one size.
LIMIT_S = 100
END_S = 5
# The PATH of root may lack these folders.
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing(*commands):
    """Why a peer that needs these commands cannot run; None if it can."""
    absent = [command for command in commands if shutil.which(command, path=PATH) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def command(name):
    return shutil.which(name, path=PATH)


def program(name, compiler="cc"):
    """A program of experiments/c, compiled if it is older than its source."""
    source, header, binary = HOME / f"c/{name}.c", HOME / "c/rounds.h", TARGET / name
    if not binary.exists() or binary.stat().st_mtime < max(
        source.stat().st_mtime, header.stat().st_mtime
    ):
        binary.parent.mkdir(parents=True, exist_ok=True)
        fresh = binary.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-o", fresh, source, "-lm"], check=True
        )
        fresh.rename(binary)
    return binary


def effective_mbit_s(message_bytes, rtt_us):
    return 8 * message_bytes / (rtt_us / 2)


def delay_ms(lab, rail):
    """A rail's one-way delay, from the network's plan."""
    given = [str(delay) for delay in lab.network.get("delay", [])]
    if rail >= len(given) or given[rail] == "-":
        return 0.0
    number, unit = re.fullmatch(r"([0-9.]+)(us|ms|s)", given[rail]).groups()
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def best_rail(lab):
    """The best rail for one connection: the fastest, and of equal ones the nearest."""
    return min(
        range(lab.rails),
        key=lambda rail: (-(lab.rates_mbit_s[rail] or float("inf")), delay_ms(lab, rail), rail),
    )


class Client:
    """A ping-pong client that stays up: it reads message sizes and prints lines of JSON."""

    def __init__(self, process, line):
        self.process, self.line = process, line
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(ValueError):
            for answer in self.process.stdout:
                self.answers.put(answer)
        self.answers.put(None)

    def measure(self, message_bytes, _seconds):
        try:
            self.process.stdin.write(f"{message_bytes}\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=LIMIT_S)
        except queue.Empty:
            raise TimeoutError(f"took longer than {LIMIT_S} s") from None
        if answer is None:
            errors = self.process.stderr.read() if self.process.stderr else ""
            raise RuntimeError(f"ended: {errors.strip()[-300:]}")
        return [{"line": self.line, **json.loads(answer)}]

    def close(self):
        """Closes the client's input and waits for it to end."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.stdin.close()
            self.process.wait(END_S)


@contextlib.contextmanager
def client(lab, line, *words):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with lab.start("a", *words, **pipes) as process:
        open_client = Client(process, line)
        try:
            yield open_client
        finally:
            open_client.close()


def gather(measurements):
    """Combines rows of several repeats into one row a line."""
    lines = {}
    for rows in measurements:
        for row in rows:
            lines.setdefault(row["line"], []).append(row)
    for repeats in lines.values():
        lists = {
            field: [round(row[field], 3) for row in repeats]
            for field in FIELDS
            if field in repeats[-1]
        }
        yield {**repeats[-1], **lists}


def messages(name, session):
    """The `messages` of a peer with sessions: one for all sizes, and a new one after a failure."""

    def run(lab, sizes, repeats, seconds):
        with contextlib.ExitStack() as stack:
            opened = None
            for message_bytes in sizes:
                try:
                    opened = opened or stack.enter_context(session(lab))
                    yield from gather(
                        [opened.measure(message_bytes, seconds) for _ in range(repeats)]
                    )
                except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                    opened = None
                    stack.close()
                    yield {
                        "kind": "skipped",
                        "line": name,
                        "message_bytes": message_bytes,
                        "reason": f"{size_name(message_bytes)}: {error}",
                    }

    return run
