"""The bound of a multicast between clusters: no method can be faster.

With constant rates, each cluster can get what the largest flow from the root's cluster to it
carries. By Edmonds' theorem on branchings, all clusters can have that at once, so the bound is the
smallest of these flows. With changing rates, the graph is expanded in time. It has a node for each
cluster and span of time, and links with the bytes that they carry in that span. Data may wait in a
cluster. Rates are those of frames, so payload cannot reach the bound itself.
"""

import collections
import itertools

# Relative precision of times.
PRECISION = 1e-4


class Flow:
    """A graph with integer capacities, and its largest flow (Dinic's algorithm)."""

    def __init__(self):
        self.ends, self.room, self.edges_of = [], [], collections.defaultdict(list)

    def edge(self, tail, head, capacity):
        for at, end, room in ((tail, head, capacity), (head, tail, 0)):
            self.edges_of[at].append(len(self.ends))
            self.ends.append(end)
            self.room.append(room)

    def largest(self, source, sink):
        total = 0
        while (levels := self._levels(source, sink)) is not None:
            total += self._block(source, sink, levels)
        return total

    def _levels(self, source, sink):
        """The number of edges with room to each node; None if the sink cannot be reached."""
        levels, queue = {source: 0}, collections.deque([source])
        while queue:
            node = queue.popleft()
            for edge in self.edges_of[node]:
                end = self.ends[edge]
                if self.room[edge] > 0 and end not in levels:
                    levels[end] = levels[node] + 1
                    queue.append(end)
        return levels if sink in levels else None

    def _block(self, source, sink, levels):
        """Fills shortest paths until none is left.

        The search is iterative, because a path is as long as the number of spans.
        """
        total, path = 0, []
        left = {node: list(edges) for node, edges in self.edges_of.items()}
        while True:
            node = self.ends[path[-1]] if path else source
            if node == sink:
                amount = min(self.room[edge] for edge in path)
                for edge in path:
                    self.room[edge] -= amount
                    self.room[edge ^ 1] += amount
                total += amount
                # Goes back to before the first edge that is full now.
                full = next(place for place, edge in enumerate(path) if self.room[edge] == 0)
                del path[full:]
                continue
            edges = left.get(node, [])
            while edges and not (
                self.room[edges[-1]] > 0 and levels.get(self.ends[edges[-1]]) == levels[node] + 1
            ):
                edges.pop()
            if edges:
                path.append(edges[-1])
            elif path:
                left[self.ends[path.pop() ^ 1]].pop()
            else:
                return total


def spans(events, until_s):
    """Converts events [(at_s, rates)] to [(seconds, rates)] that end at `until_s`.

    The rates of an event add to those before it.
    """
    rates, found = {}, []
    ends = [at_s for at_s, _ in events[1:]] + [float("inf")]
    for (at_s, change), end_s in zip(events, ends):
        if at_s >= until_s:
            break
        rates = {**rates, **change}
        found.append((min(end_s, until_s) - at_s, rates))
    return found


def deliverable(events, until_s, root, sink, access=None):
    """Bytes that can be in a cluster at a time.

    Rates are in bytes/s by (from, to). `access` is what all hosts of a cluster together can send or
    receive, in bytes/s by cluster.
    """
    graph = Flow()
    cut = spans(events, until_s)
    clusters = sorted({cluster for pair in cut[0][1] for cluster in pair}) if cut else []
    unlimited = sum(round(seconds * rate) for seconds, rates in cut for rate in rates.values()) + 1
    for number, (seconds, rates) in enumerate(cut):
        for cluster in clusters:
            if number > 0:
                graph.edge(("at", cluster, number - 1), ("at", cluster, number), unlimited)
            limit = unlimited if access is None else round(seconds * access[cluster])
            graph.edge(("at", cluster, number), ("out", cluster, number), limit)
            graph.edge(("in", cluster, number), ("at", cluster, number), limit)
        for (tail, head), rate in rates.items():
            graph.edge(("out", tail, number), ("in", head, number), round(seconds * rate))
    return graph.largest(("at", root, 0), ("at", sink, len(cut) - 1)) if cut else 0


def least_s(events, root, sink, size_bytes, access=None):
    """The earliest time at which a cluster can have a number of bytes."""
    starts = [at_s for at_s, _ in events]
    # Finds the last event before that time, then the time after the event. The bytes that can be
    # delivered never decrease with time.
    low, high = 0, 1
    # The graph gets large far ahead, so it is built only as far as needed.
    while high < len(starts) and deliverable(events, starts[high], root, sink, access) < size_bytes:
        low, high = high, 2 * high
    high = min(high, len(starts))
    while high - low > 1:
        middle = (low + high) // 2
        if deliverable(events, starts[middle], root, sink, access) < size_bytes:
            low = middle
        else:
            high = middle
    early = starts[low]
    if high < len(starts):
        late = starts[high]
    else:
        step = 1.0
        while deliverable(events, early + step, root, sink, access) < size_bytes:
            step *= 2
            if step > 1e7:
                raise ValueError(f"{sink} is never reached from {root}")
        late = early + step
    while late - early > PRECISION * late:
        middle = (early + late) / 2
        if deliverable(events, middle, root, sink, access) < size_bytes:
            early = middle
        else:
            late = middle
    return late


def bound_s(events, root, size_bytes, access=None):
    """Seconds before which some cluster is incomplete; None with one cluster."""
    clusters = sorted(set(itertools.chain.from_iterable(events[0][1])))
    return max(
        (least_s(events, root, sink, size_bytes, access) for sink in clusters if sink != root),
        default=None,
    )
