"""A pipeline of arrays on a cluster of Ray, of which each host is a node: `count`, `size`.

A filter on the second host makes arrays, copies on the others change them, and a filter on the
first host takes them in. The lines differ in what moves the arrays: Ray's object store, or
multirail. The value is the rate of arrays from their source on.
"""

import json
import subprocess

from multirail_experiments.peers.common import best_rail
from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script
from multirail_experiments.python.ray_cluster import Node, cluster, words

MULTIRAIL, RAY = "multirail", "Ray"
LINES = [RAY, MULTIRAIL]
STORE_BYTES = 512 << 20
LIMIT_S = 300


def unit(_load):
    return "MB/s"


def measured(lab, line, load):
    rail = best_rail(lab)
    nodes = [Node(host, lab.address(host, rail), {place(lab, host): 1}) for host in lab.hosts]
    arguments = [line.lower(), len(lab.hosts), size_bytes(load["size"]), load["count"]]
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
    return json.loads(done.stdout.splitlines()[-1])["mb_s"]


def place(lab, host):
    """The resource of a node, by which a copy gets there."""
    return f"host_{host}" if host in lab.hosts[:2] else "middle"
