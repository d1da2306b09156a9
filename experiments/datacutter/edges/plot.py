"""Bandwidth between two processes of one host."""

from multirail_experiments.claims import Source, demanded
from multirail_experiments.edges.results import Edges
from multirail_experiments.plan import size_name

MBIT_S = "bandwidth_mbit_s"
# Our limit for handing over a buffer of 64 KiB within one process.
WITHIN_US, WITHIN_BYTES = 2, 64 << 10


def figures(rows, out):
    Edges(rows).draw("Edges between two processes of one host", "Mbit/s", MBIT_S, out / "edges.png")


def claims(rows):
    found = Edges(rows)
    for other in ("ZeroMQ, ipc", "ZeroMQ, tcp", "Arrow Flight", "Ray"):
        for size in found.sizes:
            yield demanded(
                "edges",
                f"shm over {other}, bytes a second at {size_name(size)}",
                found.ratio("shm", other, size, MBIT_S),
                least=1,
                source=Source.PEER,
            )
    yield demanded(
        "edges",
        f"within one process, us for a buffer of {size_name(WITHIN_BYTES)}",
        found.median("within", WITHIN_BYTES, "us_per_message"),
        most=WITHIN_US,
    )
