"""Bandwidth of one edge over two rails and over one of them."""

from multirail_experiments.claims import demanded
from multirail_experiments.edges.results import Edges
from multirail_experiments.plan import size_name

MBIT_S = "bandwidth_mbit_s"
ONE, TWO = "tcp, one rail", "striped, two rails"
# Limit, as a multiple of one rail's rate.
WANTED = 1.9


def figures(rows, out):
    Edges(rows).draw(
        "One edge between two hosts with two rails of 100 Mbit/s",
        "Mbit/s",
        MBIT_S,
        out / "two-rails.png",
    )


def claims(rows):
    found = Edges(rows)
    for size in found.sizes:
        yield demanded(
            "two rails",
            f"striped over one rail, bytes a second at {size_name(size)}",
            found.ratio(TWO, ONE, size, MBIT_S),
            least=WANTED,
        )
