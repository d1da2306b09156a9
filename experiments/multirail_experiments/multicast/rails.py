"""Clusters whose hosts have several ports each: a `multirail lab` from a topology file.

A rail joins one port of every host of a cluster, and of a router if there are two clusters. The
router has a port of its own for each rail, so that each rail of one cluster is joined to one of the
other, by a link with a rate.
"""

import contextlib
import json

from multirail_experiments.lab import mbit_s
from multirail_experiments.multicast import bound as multicast_bound
from multirail_experiments.multicast.network import Clusters, Host

ROUTER = "r"
# The lab's addresses on rails are 10.77.rail.(host + 1), and the router is the first host.
NETWORK = "10.77"
BYTES_S_OF_MBIT_S = 125_000


class RailClusters(Clusters):
    """One or two clusters; a context manager.

    `network` is a table of plan.toml with `clusters` and `rails`, the rates of the ports of each
    host. Two clusters have `links`, the rate of each rail's link between them, and may have
    `queue`, the queue of every port. `congestion` is as in other networks.
    """

    def __init__(self, multirail, network, rates):
        super().__init__(multirail, network, rates)
        # The lab of clusters has one port a host and no rails.
        self.network = network
        self.rail_rates_mbit_s = [mbit_s(rate) for rate in network["rails"]]
        names = [host.name for host in self.hosts]
        self.hosts = [
            Host(name, host.cluster, addresses[0], addresses)
            for name, host in zip(names, self.hosts)
            for addresses in [
                tuple(
                    f"{NETWORK}.{rail}.{names.index(name) + 2}"
                    for rail in self.rails_of(host.cluster)
                )
            ]
        ]

    def rails_of(self, cluster):
        """The lab's numbers of a cluster's rails."""
        count = len(self.network["rails"])
        first = list(self.clusters).index(cluster) * count
        return range(first, first + count)

    @property
    def links_mbit_s(self):
        """The rate of each rail's link between two clusters."""
        return [mbit_s(rate) for rate in self.network.get("links", [])]

    def topology(self):
        """The lab's topology file."""
        yield f'[[host]]\nname = "{ROUTER}"\n[host.sysctl]\n"net.ipv4.ip_forward" = "1"'
        for host in self.hosts:
            yield f'[[host]]\nname = "{host.name}"'
        for cluster in self.clusters:
            names = [host.name for host in self.hosts if host.cluster == cluster]
            for rail, rate in enumerate(self.network["rails"]):
                yield f'[[rail]]\nrate = "{rate}"\nipv6 = false'
                yield f"hosts = {json.dumps([ROUTER, *names])}"
                if len(self.clusters) > 1:
                    yield f'rates = {{ {ROUTER} = "{self.network["links"][rail]}" }}'
                if "queue" in self.network:
                    yield f'queue = "{self.network["queue"]}"'

    def _network_flags(self):
        path = self.work / "topology.toml"
        path.write_text("\n".join(self.topology()) + "\n")
        return [str(path)]

    def __enter__(self):
        super().__enter__()
        try:
            self._add_routes()
            # Every route gets the congestion control, so the new ones exist before.
            self._set_congestion()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add_routes(self):
        """Each rail leads to the same rail of the other cluster, by the router."""
        for host in self.hosts:
            for other in self.clusters:
                if other == host.cluster:
                    continue
                for own, far in zip(self.rails_of(host.cluster), self.rails_of(other)):
                    words = f"{NETWORK}.{far}.0/24 via {NETWORK}.{own}.1 dev {self.port(own)}"
                    self.run(host.name, "ip", "route", "add", *words.split())

    def set_rates(self, rates):
        """Rates are those of the topology file."""

    def links(self):
        """Frame bytes from each cluster to the other, and drops of the router's ports."""
        if len(self.clusters) == 1:
            return {}
        shown = self.run(ROUTER, "ip", "-j", "-s", "link", "show").stdout
        ports = {row["ifname"]: row["stats64"] for row in json.loads(shown)}
        one, other = self.clusters
        found = {}
        for way in ((one, other), (other, one)):
            taken = [ports[self.port(rail)]["rx"] for rail in self.rails_of(way[0])]
            given = [ports[self.port(rail)]["tx"] for rail in self.rails_of(way[1])]
            found[way] = {
                "bytes": sum(rx["bytes"] for rx in taken),
                "packets": sum(rx["packets"] for rx in taken),
                "drops": sum(tx["dropped"] for tx in given),
            }
        return found

    @contextlib.contextmanager
    def playing(self, _events):
        """Nothing changes."""
        yield lambda: None

    def bound_s(self, _events, size_bytes):
        """Seconds before which some host is incomplete.

        No host can get more than the largest flow from the root to it, over all ports and links.
        """
        return size_bytes / min(map(self.flow_bytes_s, self.hosts[1:]))

    def flow_bytes_s(self, host):
        """The largest flow from the root to a host."""
        graph = multicast_bound.Flow()
        for one in self.hosts:
            for rail, rate in zip(self.rails_of(one.cluster), self.rail_rates_mbit_s):
                capacity = round(rate * BYTES_S_OF_MBIT_S)
                graph.edge(one.name, rail, capacity)
                graph.edge(rail, one.name, capacity)
        for one in self.clusters:
            for other in self.clusters:
                if one != other:
                    for own, far, rate in zip(
                        self.rails_of(one), self.rails_of(other), self.links_mbit_s
                    ):
                        graph.edge(own, far, round(rate * BYTES_S_OF_MBIT_S))
        return graph.largest(self.root.name, host.name)


def network_of(multirail, network, rates):
    """The network that a plan's table describes."""
    kind = RailClusters if "rails" in network else Clusters
    return kind(multirail, network, rates)
