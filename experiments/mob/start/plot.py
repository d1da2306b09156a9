"""A broadcast that finds its clusters while data moves, beside one that is told them."""

from multirail_experiments.claims import demanded
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.results import Broadcasts
from multirail_experiments.plan import size_name

TOLD, FINDS = "adaptive, clusters given", "adaptive, clusters found"


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        name = network.replace(", ", "-").replace(" ", "-")
        multicast_drawing.by_size(
            found, network, folder / f"{name}.png", f"{network}: clusters given and found"
        )
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        for size in found.sizes:
            rate = found.ratio(network, "fast", TOLD, FINDS, size)
            bound_mb_s = found.bound_mb_s(network, "fast", size) or 0
            yield demanded(
                f"{network}, {size_name(size)}",
                "clusters found: time over that with clusters given, from the start of the command",
                rate,
                most=1.03,
                note=f"bound {bound_mb_s:.2f} MB/s",
                runs=found.runs(network, "fast", FINDS, size),
            )
            yield demanded(
                f"{network}, {size_name(size)}",
                "clusters found: share of the bound, from the start of the command",
                found.share(network, "fast", FINDS, size),
                least=0.85,
                runs=found.runs(network, "fast", FINDS, size),
            )
