"""The fourth experiment: from small messages, where trees are fastest, to large ones."""

from multirail_experiments.claims import Claim, Source, demanded, judged, not_measured
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.results import WARM, Broadcasts
from multirail_experiments.plan import size_name
from multirail_experiments.points import best_everywhere

# The size from which on MOB is faster than MagPIe in the paper, with 4x16 hosts.
PAPER_CROSSOVER = {"20 ms": "512 KB", "100 ms": "32 MB"}
PAPER_BYTES = {"20 ms": 512 << 10, "100 ms": 32 << 20}
# What the default is held against at each size.
BESIDE = ("magpie", "chain", "mob", "Open MPI", "Open MPI, chain")


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        multicast_drawing.by_size(
            found,
            network,
            folder / f"{network.replace(', ', '-').replace(' ', '-')}.png",
            f"{network}: one message to all hosts",
        )
    multicast_drawing.write_tables(found, folder)


def delay_of(network):
    """The paper's delay that is nearest to a network's."""
    return "100 ms" if network.endswith("100 ms") else "20 ms"


def crossover(found, network, line):
    """The least size from which on a line is as fast as MagPIe at all larger sizes."""
    least = None
    for size in reversed(found.sizes_of(network)):
        ratio = found.ratio(network, "fast", line, "magpie", size)
        if ratio is None or ratio < 1:
            break
        least = size
    return least


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        for line in ("mob", "adaptive"):
            yield crossover_claim(found, network, line)
        for size in found.sizes_of(network):
            best = found.best(network, "fast", BESIDE, size)
            for line in ("adaptive", WARM):
                if line == "adaptive" or found.row(network, "fast", line, size):
                    yield beside_the_best(found, network, size, line, best)
    yield best_everywhere("all", rows)


def beside_the_best(found, network, size, line, best):
    ours = found.ratio(network, "fast", line, best, size) if best else None
    return demanded(
        f"{network}, {size_name(size)}",
        f"{line}: rate over that of the best other method or program ({best or '-'})",
        ours,
        least=0.9,
        source=Source.PEER,
        runs=None
        if ours is None
        else min(found.runs(network, "fast", one, size) for one in (line, best)),
    )


def crossover_claim(found, network, line):
    where, text = f"fourth experiment, {network}", f"{line} at least as fast as magpie"
    expected = f"from {PAPER_CROSSOVER[delay_of(network)]}"
    sizes = found.sizes_of(network)
    rows = [found.row(network, "fast", name, sizes[-1]) for name in (line, "magpie")]
    if None in rows:
        return not_measured(where, text, expected)
    least = crossover(found, network, line)
    return Claim(
        where,
        text,
        expected,
        "never" if least is None else f"from {size_name(least)}",
        judged(least is not None and least <= PAPER_BYTES[delay_of(network)]),
    )
