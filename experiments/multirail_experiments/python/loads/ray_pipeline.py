"""A pipeline of arrays on a cluster of Ray, of which each host is a node: `count`, `size`.

A filter on the second host makes arrays, copies on the others change them, and a filter on the
first host takes them in. The lines differ in what moves the arrays: Ray's object store, or
multirail. The value is the rate of arrays from their source on.
"""

import contextlib
import json
import subprocess
import time

from multirail_experiments.peers.common import best_rail
from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script

MULTIRAIL, RAY = "multirail", "Ray"
LINES = [RAY, MULTIRAIL]
PORT = 6379
STORE_BYTES = 512 << 20
READY_S, LIMIT_S = 60, 300


def unit(_load):
    return "MB/s"


def measured(lab, line, load):
    python = script("ray_pipeline")[0]
    ray = [python, python.parent / "ray"]
    rail = best_rail(lab)
    with contextlib.ExitStack() as nodes:
        for host in lab.hosts:
            address = lab.address(host, rail)
            where = ["--head", "--port", PORT, "--include-dashboard=false"]
            if host != lab.hosts[0]:
                where = ["--address", f"{lab.address(lab.hosts[0], rail)}:{PORT}"]
            node = [
                *(*ray, "start", "--block", *where, "--node-ip-address", address),
                *("--num-cpus", 4, "--object-store-memory", STORE_BYTES, "--disable-usage-stats"),
                *("--resources", json.dumps({place(lab, host): 1})),
                *("--temp-dir", lab.work / f"ray-{host}"),
            ]
            log = nodes.enter_context(open(lab.work / f"{host}.log", "w"))
            nodes.enter_context(lab.start(host, *node, stdout=log, stderr=log))
            if host == lab.hosts[0]:
                wait_until(lab.listens(host, PORT))
        words = [line.lower(), len(lab.hosts), size_bytes(load["size"]), load["count"]]
        env = ["env", f"RAY_ADDRESS={lab.address(lab.hosts[0], rail)}:{PORT}"]
        done = lab.run(
            lab.hosts[0],
            *(*env, *script("ray_pipeline"), *words),
            check=False,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{line}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])["mb_s"]


def place(lab, host):
    """The resource of a node, by which a copy gets there."""
    return f"host_{host}" if host in lab.hosts[:2] else "middle"


def wait_until(ready):
    deadline = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"Ray was not ready after {READY_S} s")
        time.sleep(0.2)
