"""Measures a plan with `measures = "microscope"`: tours over a slide by examples/microscope.

Keys of a plan:

    times, quick_times    how often the picture is repeated in each direction
    repeats               tours of each line, in an order that rotates
    hosts                 how many processes share the copies of a line with a transport
    [[line]]              name, and a transport; without one, all filters are in one process

The slide is made below target/ and removed after the measurement; the picture stays. A row has
line, view, factor, and lists with one value a picture: took_ms, read_bytes of the slide, right
(whether its file equals that of a simple loop), and cpu_idle_share of its tour.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

from multirail_experiments.host import Cpu
from multirail_experiments.paths import ROOT, TARGET

GET_PICTURE = ROOT / "examples/microscope/get-picture"
FOLDER = TARGET / "microscope"
PICTURE, SLIDE = FOLDER / "ihc.png", FOLDER / "slide"
LIMIT_S = 300


def measure(plan, multirail, quick, emit):
    table = plan.table
    emit({"kind": "plan", "name": plan.name, **table, "quick": quick})
    program = pathlib.Path(multirail).parent / "microscope"
    if not program.exists():
        raise RuntimeError(f"{program} is missing: cargo build --release -p microscope")
    if not PICTURE.exists():
        run([GET_PICTURE, FOLDER])
    with tempfile.TemporaryDirectory(prefix="multirail-microscope-") as work:
        try:
            emit(grown(program, table["quick_times" if quick else "times"]))
            for row in rows(program, table, 1 if quick else table["repeats"], pathlib.Path(work)):
                emit({"kind": "view", **row})
        finally:
            SLIDE.unlink(missing_ok=True)


def grown(program, times):
    since = time.monotonic()
    run([program, "grow", PICTURE, SLIDE, "--times", times])
    side = int.from_bytes(PICTURE.read_bytes()[16:20]) * times
    return {
        "kind": "slide",
        "side_pixels": side,
        "gigapixels": round(side**2 / 1e9, 2),
        "bytes": SLIDE.stat().st_size,
        "took_s": round(time.monotonic() - since, 1),
    }


def rows(program, table, repeats, work):
    token, lines, found = work / "token", table["line"], {}
    token.touch(mode=0o600)
    token.write_bytes(os.urandom(16).hex().encode())
    with hosts(program, table["hosts"], token) as addresses:
        # This tour does not count. It loads the middle of the slide into memory, and the simple
        # loop provides the right pictures.
        right = {
            view["picture"]: pathlib.Path(view["picture"]).read_bytes()
            for view in tour(program, {}, [], token, work, "--compare", SLIDE)
        }
        for repeat in range(repeats):
            turn = repeat % len(lines)
            for line in lines[turn:] + lines[:turn]:
                cpu = Cpu()
                views = tour(program, line, addresses, token, work)
                idle = cpu.take()["cpu_idle_share"]
                for view in views:
                    row = found.setdefault(
                        (line["name"], view["view"], view["factor"]), start(line, view)
                    )
                    row["took_ms"].append(round(view["took_ms"], 2))
                    row["read_bytes"].append(view["read_bytes"])
                    row["right"].append(
                        pathlib.Path(view["picture"]).read_bytes() == right[view["picture"]]
                    )
                    row["cpu_idle_share"].append(idle)
    yield from found.values()


def start(line, view):
    return {
        "line": line["name"],
        "view": view["view"],
        "factor": view["factor"],
        **{field: [] for field in ("took_ms", "read_bytes", "right", "cpu_idle_share")},
    }


@contextlib.contextmanager
def hosts(program, count, token):
    """Starts processes that have the slide; yields their addresses."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(count):
            command = [
                program,
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--root",
                FOLDER,
                "--token-file",
                token,
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(end, process)
            addresses.append(process.stdout.readline().split()[-1])
        yield addresses


def end(process):
    process.terminate()
    process.wait()
    process.stdout.close()


def tour(program, line, addresses, token, work, *more):
    where = (
        [
            SLIDE.name,
            "--hosts",
            ",".join(addresses),
            "--transport",
            line["transport"],
            "--token-file",
            token,
        ]
        if "transport" in line
        else [SLIDE]
    )
    return [
        json.loads(text)
        for text in run(
            [program, "tour", *where, "--json", "--out", work / "pictures", *more]
        ).splitlines()
    ]


def run(command):
    ran = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S
    )
    if ran.returncode:
        raise RuntimeError(f"{pathlib.Path(command[0]).name}: {ran.stderr.strip()[-500:]}")
    return ran.stdout
