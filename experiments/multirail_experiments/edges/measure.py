"""Measures a plan with `measures = "edges"`: messages between two processes.

The processes are on one host, or with a `[[network]]` on the two hosts of that lab. Keys of a plan:

    sizes, repeats    message sizes, and how often everything is measured; the order of lines
                      rotates with each repeat
    seconds           roughly how long a point takes that `bench` does not measure
    [[line]]          name, program, its own sizes, and keys of the program:
        bench         a transport of `multirail bench --transports`: `transport`
                      (`plain-tcp`: the plain TCP connection that `bench` measures beside it)
        perftest      ucx_perftest: `tls`, as UCX_TLS takes it
        within        an edge within one process, by the example datacutter
        peer          another library, by edges/peer.py: `peer`
    [[network]]       one, with two hosts; only for `bench`
    [quick]           sizes, repeats and seconds of a quick run

A row has line, message_bytes, and lists with one value a repeat: bandwidth_mbit_s, and one_way_us
where it was measured. Within a process it has us_per_message, since no bytes move there.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from multirail_experiments.lab import Lab
from multirail_experiments.paths import EDGES_PACKAGES, HOME, PYTHON
from multirail_experiments.plan import size_bytes

PEER = ["-m", "multirail_experiments.edges.peer"]
PERFTEST_PORT = 17339
LIMIT_S = 120
FIELDS = ("one_way_us", "bandwidth_mbit_s", "us_per_message")


def measure(plan, multirail, quick, emit):
    table = {**plan.table, **(plan.table.get("quick", {}) if quick else {})}
    emit({"kind": "plan", "name": plan.name, **table, "quick": quick})
    found = {}
    with served(multirail, plan) as bench:
        lines = []
        for line in table["line"]:
            why = missing(multirail, bench, line)
            if why:
                emit({"kind": "skipped", "line": line["name"], "reason": why})
            else:
                lines.append(line)
        for repeat in range(table["repeats"]):
            turn = repeat % max(len(lines), 1)
            for line in lines[turn:] + lines[:turn]:
                sizes = [size_bytes(size) for size in line.get("sizes", table["sizes"])]
                for point in PROGRAMS[line["program"]](
                    multirail, bench, line, sizes, table["seconds"]
                ):
                    row = found.setdefault((line["name"], point["message_bytes"]), {})
                    for field in FIELDS:
                        if point.get(field) is not None:
                            row.setdefault(field, []).append(round(point[field], 4))
    for (line, message_bytes), row in sorted(found.items(), key=lambda item: item[0][1]):
        emit({"kind": "edge", "line": line, "message_bytes": message_bytes, **row})


@contextlib.contextmanager
def served(multirail, plan):
    """Starts a server; yields the `multirail bench` command that measures edges to it."""
    if plan.networks:
        with Lab(multirail, plan.networks[0]) as lab, lab.serve(lab.work):
            yield lab.on(
                "a",
                multirail,
                "--json",
                "bench",
                lab.address("b", 0),
                "--token-file",
                lab.token_file,
            )
        return
    with tempfile.TemporaryDirectory(prefix="multirail-edges-") as folder:
        with tempfile.TemporaryFile("w+") as said:
            server = subprocess.Popen(
                [multirail, "serve", "--listen", "127.0.0.1:0", "--root", folder],
                stdout=said,
                stderr=said,
            )
            try:
                yield [multirail, "--json", "bench", address_of(server, said)]
            finally:
                server.terminate()
                server.wait()


def address_of(server, said):
    for _ in range(200):
        said.seek(0)
        found = re.search(r"127\.0\.0\.1:\d+", said.read())
        if found:
            return found.group()
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError("multirail serve did not come up")


def example(multirail):
    return pathlib.Path(multirail).parent / "examples/datacutter"


def missing(multirail, bench, line):
    """Why a line cannot be measured here, or None."""
    if line["program"] == "bench":
        if line["transport"] == "plain-tcp":
            return None
        tried = subprocess.run(
            transport_of(bench, line["transport"], [1]),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        return tried.stderr.strip().splitlines()[-1] if tried.returncode else None
    if line["program"] == "within":
        return (
            None
            if example(multirail).exists()
            else "no example: cargo build --release -p multirail --example datacutter"
        )
    if line["program"] == "perftest":
        return (
            None if shutil.which("ucx_perftest") else "no ucx_perftest: scripts/setup experiments"
        )
    tried = subprocess.run(
        [PYTHON, "-B", *PEER, line["peer"], "--try"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=LIMIT_S,
    )
    return (
        f"no Python package: {tried.stderr.strip().splitlines()[-1]}; scripts/setup edges"
        if tried.returncode
        else None
    )


def environment():
    return {
        **os.environ,
        "PYTHONPATH": f"{HOME}:{EDGES_PACKAGES}",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def run(command, env=None):
    ran = subprocess.run(command, capture_output=True, text=True, env=env, timeout=LIMIT_S)
    if ran.returncode:
        raise RuntimeError(f"{pathlib.Path(command[0]).name}: {ran.stderr.strip()[-500:]}")
    return ran.stdout


def transport_of(bench, transport, sizes):
    return [
        *bench,
        "--transports",
        transport,
        "--repeat",
        "1",
        "--sizes",
        ",".join(map(str, sizes)),
    ]


def by_bench(_multirail, bench, line, sizes, _seconds):
    """Each call also measures plain TCP; the line of that name comes from a call of its own."""
    wanted = line["transport"]
    for text in run(
        transport_of(bench, "tcp" if wanted == "plain-tcp" else wanted, sizes)
    ).splitlines():
        row = json.loads(text)
        if row["transport"] == wanted:
            yield row


def by_within(multirail, _bench, _line, sizes, seconds):
    with tempfile.TemporaryDirectory(prefix="multirail-edges-") as folder:
        for size in sizes:
            job = pathlib.Path(folder) / "job.json"
            # This is enough for the time if a buffer takes 5 us; the example sends all of them
            # twice.
            measure = {"within": {"buffer_bytes": size, "buffers": int(seconds * 1e5)}}
            job.write_text(
                json.dumps(
                    {"hosts": [], "transport": "shm", "compute_ns_per_byte": 0, "measure": measure}
                )
            )
            row = json.loads(run([example(multirail), "run", job]))
            yield {"message_bytes": size, "us_per_message": row["us_per_buffer"]}


def by_perftest(_multirail, _bench, line, sizes, seconds):
    env = {**os.environ, "UCX_TLS": line["tls"], "UCX_LOG_LEVEL": "error"}
    for size in sizes:
        latency_us = perftest(env, "tag_lat", size, seconds)[0]
        yield {
            "message_bytes": size,
            "one_way_us": latency_us,
            "bandwidth_mbit_s": perftest(env, "tag_bw", size, seconds)[1],
        }


def perftest(env, test, size, seconds):
    """Median latency in microseconds and overall bandwidth in Mbit/s; ucx_perftest's MB are MiB."""
    rounds = max(20, min(20_000, int(seconds * 2e9 / (size + 10_000))))
    command = [
        "ucx_perftest",
        "-t",
        test,
        "-s",
        str(size),
        "-n",
        str(rounds),
        "-w",
        str(max(5, rounds // 10)),
        "-p",
        str(PERFTEST_PORT),
        "-f",
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    try:
        for _attempt in range(50):
            client = subprocess.run(
                [command[0], "127.0.0.1", *command[1:]],
                capture_output=True,
                text=True,
                env=env,
                timeout=LIMIT_S,
            )
            if client.returncode == 0:
                break
            time.sleep(0.05)
        server.wait(timeout=10)
    finally:
        server.kill()
        server.wait()
    for text in reversed(client.stdout.splitlines()):
        numbers = [float(word) for word in re.findall(r"\d+(?:\.\d+)?", text)]
        if len(numbers) >= 8:
            return numbers[1], numbers[5] * 8 * 2**20 / 1e6
    raise RuntimeError(f"ucx_perftest: {(client.stdout + client.stderr)[-300:]}")


def by_peer(_multirail, _bench, line, sizes, seconds):
    command = [PYTHON, "-B", *PEER, line["peer"], "--seconds", str(seconds), *map(str, sizes)]
    for text in run(command, environment()).splitlines():
        if text.startswith("{"):
            yield json.loads(text)


PROGRAMS = {"bench": by_bench, "within": by_within, "perftest": by_perftest, "peer": by_peer}

if __name__ == "__main__":
    sys.exit("run by experiments/run")
