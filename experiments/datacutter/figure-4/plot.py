"""Figure 4: latency and bandwidth over message sizes."""

from multirail_experiments.claims import Source, compare, demanded
from multirail_experiments.edges.results import Edges
from multirail_experiments.plan import K, M, size_name

MBIT_S = "bandwidth_mbit_s"


def figures(rows, out):
    found = Edges(rows)
    found.draw(
        "Figure 4a: latency of small and large messages",
        "one way, µs",
        "one_way_us",
        out / "figure-04a.png",
    )
    found.draw("Figure 4b: bandwidth", "Mbit/s", MBIT_S, out / "figure-04b.png")


def claims(rows):
    found = Edges(rows)
    small = 8
    # The paper: SocketVIA takes 9.5 µs, TCP nearly five times that; at most 763 Mbit/s against 510.
    yield compare(
        "figure 4a",
        "shm, one way at 8 B, over plain TCP's",
        1 / 5,
        found.ratio("shm", "plain TCP", small, "one_way_us"),
        less=True,
        note="the paper: SocketVIA 9.5 µs, TCP nearly five times that",
    )
    yield demanded(
        "figure 4a",
        "shm, one way at 8 B, over ucx_perftest's",
        found.ratio("shm", "ucx_perftest", small, "one_way_us"),
        most=3,
        source=Source.PEER,
    )
    for size in (64 * K, 1 * M):
        yield compare(
            "figure 4b",
            f"shm, bandwidth at {size_name(size)}, over plain TCP's",
            763 / 510,
            found.ratio("shm", "plain TCP", size, MBIT_S),
            note="the paper: 763 Mbit/s and 510, at best",
        )
