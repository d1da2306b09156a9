"""A pipeline of arrays on a cluster of Ray, of which each host is a node: `count`, `size`.

A filter on the second host makes arrays, copies on the others change them, and a filter on the
first host takes them in. The lines differ in what moves the arrays: Ray's object store, or
multirail. The value is the rate of arrays from their source on. In the last two lines, an actor is
killed in the middle. A run in which an array is lost has no value.
"""

import json
import subprocess

from multirail_experiments.peers.common import best_rail
from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script
from multirail_experiments.python.ray_cluster import Node, cluster, words

MULTIRAIL, RAY = "multirail", "Ray"
# An actor is killed: the line without.
KILLED = {f"{line}, an actor killed": line for line in (RAY, MULTIRAIL)}
LINES = [RAY, MULTIRAIL, *KILLED]
STORE_BYTES = 512 << 20
LIMIT_S = 300


def unit(_load):
    return "MB/s"


def measured(lab, line, load):
    rail = best_rail(lab)
    nodes = [Node(host, lab.address(host, rail), {place(lab, host): 1}) for host in lab.hosts]
    name = KILLED.get(line, line).lower()
    arguments = [name, len(lab.hosts), size_bytes(load["size"]), load["count"]]
    if line in KILLED:
        arguments.append(lab.work / "killed")
    with cluster(lab, nodes, cpus=4, store_bytes=STORE_BYTES) as variables:
        done = lab.run(
            lab.hosts[0],
            *("env", *words(variables), *script("ray_pipeline"), *arguments),
            check=False,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{line}: {done.stderr.strip()[-500:]}")
    # Ray prints messages of its own, too.
    (found,) = (row for row in done.stdout.splitlines() if row.startswith("{"))
    return json.loads(found)["mb_s"]


def place(lab, host):
    """The resource of a node, by which a copy gets there."""
    return f"host_{host}" if host in lab.hosts[:2] else "middle"
