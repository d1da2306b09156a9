"""Bytes a second between two processes of one host."""

from edges_results import Edges, demand
from plan import size_name

MBIT_S = "bandwidth_mbit_s"
# An edge within a process may take so long for a buffer of 64 KiB (ours).
WITHIN_US, WITHIN_BYTES = 2, 64 << 10


def figures(rows, out):
    Edges(rows).draw("Edges between two processes of one host", "Mbit/s", MBIT_S, out / "edges.png")


def claims(rows):
    found = Edges(rows)
    for other in ("ZeroMQ, ipc", "ZeroMQ, tcp", "Arrow Flight", "Ray"):
        for size in found.sizes:
            yield demand("edges", f"shm over {other}, bytes a second at {size_name(size)}", 1, found.ratio("shm", other, size, MBIT_S))
    yield demand("edges", f"within one process, us for a buffer of {size_name(WITHIN_BYTES)}", WITHIN_US,
                 found.median("within", WITHIN_BYTES, "us_per_message"), less=True)
