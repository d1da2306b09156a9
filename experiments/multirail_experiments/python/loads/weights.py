"""An array from the first host to all others, in clusters: `size`.

The value is the time from the root's call until the last host has the whole array. All groups have
been made before, and have moved a small array. The line `bound` is computed: no method can be
faster.
"""

from multirail_experiments.multicast import scenario
from multirail_experiments.multicast.network import Clusters
from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script
from multirail_experiments.python.ray_cluster import Node, cluster, words

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
    if line == RAY:
        nodes = [Node(host.name, host.address, {}) for host in lab.hosts]
        with cluster(lab, nodes, cpus=1, store_bytes=2 * size) as variables:
            done = ran(lab, [lab.root], line, size, variables)
        return float(done[lab.root.name])
    done = ran(lab, lab.hosts, line, size, {"MULTIRAIL_TOKEN_FILE": lab.token_file})
    # The root says when it began.
    began = float(done.pop(lab.root.name))
    return max(map(float, done.values())) - began


def ran(lab, hosts, line, size, variables):
    """What the script said at the end, by host."""
    names = [host.name for host in lab.hosts]
    variables = {
        **variables,
        "MASTER_ADDR": lab.root.address,
        "MASTER_PORT": PORT,
        "WORLD_SIZE": len(names),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "OMP_NUM_THREADS": 1,
    }

    def command(host):
        env = words({**variables, "RANK": names.index(host.name)})
        return ["env", *env, *script("weights"), line.lower(), size]

    log = lab.work / "weights.log"
    with lab.peers(command, hosts, ready="ready", log=log, ready_s=LIMIT_S) as peers:
        peers.tell("go")
        return peers.wait_for("done", len(hosts), LIMIT_S)
