"""An array from the first host to all others, in clusters: `size`.

The value is the time from the root's call until the last host has the whole array. All groups have
been made before, and have moved a small array. The line `bound` is computed: no method can be
faster.
"""

from multirail_experiments.multicast import scenario
from multirail_experiments.multicast.network import Clusters
from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script

BOUND, GLOO, RAY, MULTIRAIL = "bound", "Gloo", "Ray", "multirail"
LINES = [BOUND, GLOO, RAY, MULTIRAIL]
PORT = 29500
# The network interface of hosts of clusters.
INTERFACE = "lan"
LIMIT_S = 500


def unit(_load):
    return "s"


def lab(multirail, network):
    """Clusters whose links carry what those of the scenario `fast` do."""
    return Clusters(multirail, network, events(network)[0][1])


def events(network):
    return scenario.events("fast", rate_scale=network.get("rate_scale", 1.0))


def measured(lab, line, load):
    size = size_bytes(load["size"])
    if line == BOUND:
        return lab.bound_s(events(lab.network), size)
    names = [host.name for host in lab.hosts]
    variables = {
        "MASTER_ADDR": lab.root.address,
        "MASTER_PORT": PORT,
        "WORLD_SIZE": len(names),
        "MULTIRAIL_TOKEN_FILE": lab.token_file,
        "OMP_NUM_THREADS": 1,
        "FOLDER": lab.work,
    }

    def command(host):
        rank = names.index(host.name)
        env = {**variables, "RANK": rank, "HOST_ADDRESS": host.address, "INTERFACE": INTERFACE}
        words = [f"{key}={value}" for key, value in env.items()]
        return ["env", *words, *script("weights"), line.lower(), size]

    log = lab.work / "weights.log"
    with lab.peers(command, ready="ready", log=log, ready_s=LIMIT_S) as peers:
        peers.tell("go")
        done = peers.wait_for("done", len(names), LIMIT_S)
    # The root says when it began.
    began = float(done.pop(lab.root.name))
    return max(map(float, done.values())) - began
