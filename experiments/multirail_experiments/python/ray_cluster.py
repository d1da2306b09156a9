"""A cluster of Ray in a lab: each host is a node."""

import contextlib
import json
import time
from typing import NamedTuple

from multirail_experiments.multicast.network import Peers
from multirail_experiments.python.measure import script

PORT = 6379
# By default, Ray sends an array again from its start if it has not arrived after 10 s, and goes on
# with the first one. Then 64 MiB to 15 hosts take twice as long.
PULL_TIMEOUT_MS = 600_000
# A node needs some seconds of CPU time to start.
HEAD_READY_S = 60


class Node(NamedTuple):
    # The host.
    name: str
    address: str
    # Ray's own resources, by which actors get to the node.
    resources: dict


@contextlib.contextmanager
def cluster(lab, nodes, *, cpus, store_bytes):
    """Runs a node of Ray on hosts, the first one as the head. Nodes may be there later.

    Yields the variables of the environment that a program of the cluster needs.
    """
    address = f"{nodes[0].address}:{PORT}"
    python = script("")[0]
    variables = {
        # Otherwise Ray looks in the user's home whether programs must have a secret.
        "RAY_AUTH_MODE": "disabled",
        "RAY_object_manager_pull_timeout_ms": PULL_TIMEOUT_MS,
    }

    def command_of(node):
        is_head = node is nodes[0]
        head = ["--head", "--port", PORT, "--include-dashboard=false"]
        return [
            *("env", *words(variables), python, "-B", python.parent / "ray", "start", "--block"),
            *(head if is_head else ["--address", address]),
            *("--node-ip-address", node.address, "--num-cpus", cpus),
            *("--object-store-memory", store_bytes, "--disable-usage-stats"),
            *("--resources", json.dumps(node.resources)),
            *("--temp-dir", lab.work / f"ray-{node.name}"),
        ]

    peers = Peers(lab, command_of, lab.work / "ray.log")
    try:
        peers.start(nodes[0])
        wait_until(lab.listens(nodes[0].name, PORT))
        for node in nodes[1:]:
            peers.start(node)
        yield {**variables, "RAY_ADDRESS": address}
    except (RuntimeError, TimeoutError) as error:
        raise RuntimeError(f"{error}; Ray: {peers.errors()}") from error
    finally:
        # Nodes that are asked to end wait for others first. Their processes end with them.
        for node in nodes:
            if node.name in peers.processes:
                peers.kill(node.name)
        peers.end()


def words(variables):
    """Variables as arguments of `env`."""
    return [f"{key}={value}" for key, value in variables.items()]


def wait_until(ready):
    deadline = time.monotonic() + HEAD_READY_S
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"Ray was not ready after {HEAD_READY_S} s")
        time.sleep(0.2)
