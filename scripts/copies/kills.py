"""A tree of 2 GiB is copied while the client or the server is killed (SIGKILL) at random moments.

Afterwards the same command runs once to its end. The trees must be equal, nothing may be left over,
and what crossed the rails is compared with one copy that nothing disturbs.
"""

import contextlib
import json
import os
import random
import subprocess
import time

from lab import Lab
from measure import SERVER, K, M, write_random

KILLS = 20
SMALL, LARGE = 2000, 5
SMALL_BYTES, LARGE_BYTES = 4 * K, 400 * M
RATES = "1gbit,1gbit"
# The tree takes some twenty seconds, so that twenty such runs hit different parts of it.
RUNS_AT_MOST_S = 0.9
MOST_SHARE, MOST_MORE_BYTES = 1.05, 64 * M


def measure(args):
    """Prints what was measured, and returns what is not as it should be."""
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4))
    moments = random.Random(seed)
    print(f"kills: seed {seed}", flush=True)
    with Lab(args.multirail, ("a", "b"), "--hosts", "a,b", "--rails", RATES) as lab, Server(lab) as server:
        tree = lab.work / "tree"
        write_tree(tree)
        command = [lab.multirail, "cp", "-r", "--token-file", lab.token_file, tree]
        before, began = received_bytes(lab), time.monotonic()
        lab.run("a", *command, f"mr://{SERVER}/clean/")
        clean_s, clean_bytes = time.monotonic() - began, received_bytes(lab) - before
        subprocess.run(["rm", "-r", server.root / "clean"], check=True)
        before, hits = received_bytes(lab), 0
        for _ in range(KILLS):
            with lab.started("a", *command, f"mr://{SERVER}/copy/") as client:
                time.sleep(moments.uniform(0, RUNS_AT_MOST_S))
                hits += client.poll() is None
                if moments.random() < 0.5:
                    client.kill()
                else:
                    server.kill()
            server.start()
        lab.run("a", *command, f"mr://{SERVER}/copy/")
        wire_bytes = received_bytes(lab) - before
        differs = subprocess.run(["diff", "-r", tree, server.root / "copy/tree"], capture_output=True, text=True)
        left = [str(path) for path in server.root.rglob("*") if "multirail-part" in path.name]
    most = MOST_SHARE * clean_bytes + MOST_MORE_BYTES
    print(f"kills: {hits} of {KILLS} hit a running copy; {wire_bytes / 1e6:.0f} MB on the wire, "
          f"{clean_bytes / 1e6:.0f} MB and {clean_s:.1f} s undisturbed, {most / 1e6:.0f} MB allowed; "
          f"trees {'differ' if differs.returncode else 'are equal'}, {len(left)} parts left", flush=True)
    if differs.returncode:
        yield f"the trees differ: {differs.stdout[:300]}{differs.stderr[:300]}"
    if left:
        yield f"left over: {', '.join(left[:5])}"
    if wire_bytes > most:
        yield f"{wire_bytes} bytes on the wire, and {most:.0f} are allowed"


class Server:
    """`multirail serve` on host b, which can be killed and started again."""

    def __init__(self, lab):
        self.lab, self.root, self.stack = lab, lab.work / "served", contextlib.ExitStack()
        self.process = None
        self.root.mkdir()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self):
        """Starts it, unless it runs."""
        if self.process and self.process.poll() is None:
            return
        self.stack.close()
        command = [self.lab.multirail, "serve", "--root", self.root, "--token-file", self.lab.token_file]
        self.process = self.stack.enter_context(self.lab.server("b", 7717, *command))

    def kill(self):
        self.process.kill()
        self.process.wait()


def write_tree(root):
    for number in range(SMALL):
        folder = root / f"folder-{number % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        write_random(folder / f"small-{number}", SMALL_BYTES)
    for number in range(LARGE):
        write_random(root / f"large-{number}", LARGE_BYTES)


def received_bytes(lab):
    """What host b has received over its rails."""
    links = json.loads(lab.run("b", "ip", "-json", "-statistics", "link"))
    return sum(link["stats64"]["rx"]["bytes"] for link in links if link["ifname"].startswith("rail"))
