"""Connections that a program opens: `of` says what of them is measured.

setup    the median time of `connect` for 500 connections one after another, in ms
rate     connections a second, opened and closed by 16 threads for `seconds`
memory   KiB for each of 1,000 idle connections: what `multirail run` and the server on host b grow
         by, whichever grows more
"""

import contextlib
import pathlib
import subprocess

from multirail_experiments.peers.common import best_rail

UNITS = {"setup": "ms", "rate": "connections/s", "memory": "KiB"}
PORT = 7825
LIMIT_S = 60
IDLE = 1_000

SERVER = """
import socket, sys, threading
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=4096)
kept = []
def accept():
    while True:
        kept.append(listener.accept()[0])
        if len(kept) > 2000:
            kept.pop(0).close()
for _ in range(4):
    threading.Thread(target=accept, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""

SETUP = """
import socket, sys, time, statistics
def connect():
    began = time.perf_counter()
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))):
        return time.perf_counter() - began
connect()
print(1e3 * statistics.median(connect() for _ in range(500)))
"""

RATE = """
import socket, sys, threading, time
address, until = (sys.argv[1], int(sys.argv[2])), time.monotonic() + float(sys.argv[3])
def connect(counts):
    while time.monotonic() < until:
        socket.create_connection(address).close()
        counts[0] += 1
counts = [[0] for _ in range(16)]
threads = [threading.Thread(target=connect, args=(count,)) for count in counts]
began = time.monotonic()
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(count for count, in counts) / (time.monotonic() - began))
"""

HOLD = """
import socket, sys
address = (sys.argv[1], int(sys.argv[2]))
held = [socket.create_connection(address)]
for count in (1, int(sys.argv[3])):
    while len(held) < count:
        held.append(socket.create_connection(address))
    print("held", flush=True)
    sys.stdin.readline()
"""


def unit(load):
    return UNITS[load["of"]]


def lacks():
    return None


@contextlib.contextmanager
def serving(lab, load):
    address = lab.address("b", best_rail(lab))
    python = ["/usr/bin/python3", "-c"]
    pipes = {"stderr": subprocess.PIPE, "timeout": LIMIT_S}

    def setup():
        return float(lab.run("a", *python, SETUP, address, PORT, **pipes).stdout)

    def rate():
        return float(lab.run("a", *python, RATE, address, PORT, load["seconds"], **pipes).stdout)

    def memory():
        words = [*python, HOLD, address, PORT, IDLE + 1]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with lab.start("a", *words, **pipes) as process:
            resident = []
            for _ in range(2):
                if process.stdout.readline() != "held\n":
                    raise RuntimeError("the program that holds connections has ended")
                resident.append([resident_kib(pid) for pid in (process.pid, lab.server.pid)])
                process.stdin.write("\n")
                process.stdin.flush()
        return max(after - before for before, after in zip(*resident)) / IDLE

    with lab.start("b", *python, SERVER, address, PORT, ready="ready"):
        yield {"setup": setup, "rate": rate, "memory": memory}[load["of"]]


def resident_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    [line] = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])
