"""Collectives of PyTorch on all hosts: `operation`, `size` and `count`.

The value is the mean time of the slowest rank, between barriers. Gloo uses the
fastest rail.
"""

import contextlib
import json

from multirail_experiments.peers.common import best_rail
from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script

GLOO, MULTIRAIL = "Gloo", "multirail"
LINES = [GLOO, MULTIRAIL]
PORT = 29500
LIMIT_S = 180


def unit(_load):
    return "ms"


def measured(lab, line, load):
    rail = best_rail(lab)
    variables = {
        "MASTER_ADDR": lab.address("a", rail),
        "MASTER_PORT": PORT,
        "WORLD_SIZE": len(lab.hosts),
        "GLOO_SOCKET_IFNAME": lab.port(rail),
        "MULTIRAIL_TOKEN_FILE": lab.token_file,
        "OMP_NUM_THREADS": 1,
    }
    backend = {GLOO: "gloo", MULTIRAIL: "multirail"}[line]
    words = [backend, load["operation"], size_bytes(load["size"]), load["count"]]

    def command(rank):
        env = [f"{key}={value}" for key, value in {**variables, "RANK": rank}.items()]
        return ["env", *env, *script("collectives"), *words]

    errors = lab.work / "errors"
    with contextlib.ExitStack() as others, open(errors, "w") as log:
        for rank, host in enumerate(lab.hosts[1:], 1):
            others.enter_context(lab.start(host, *command(rank), stderr=log))
        done = lab.run("a", *command(0), check=False, stderr=log, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{line}: {errors.read_text().strip()[-500:]}")
    return json.loads(done.stdout)["ms"]
