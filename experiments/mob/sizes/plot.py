"""The fourth experiment: messages from small to large, where trees are the fastest, and where all links are."""

import multicast_drawing
from multicast_results import Broadcasts, demanded
from plan import size_name
from results import Claim, NOT_AVAILABLE, NOT_REACHED, REACHED, Results, best_everywhere

# From which size on MOB was faster than MagPIe in the paper.
PAPER_CROSSOVER = {"4x4": "512 KB", "4x4, 100 ms": "32 MB"}
PAPER_BYTES = {"4x4": 512 << 10, "4x4, 100 ms": 32 << 20}
MAGPIE_MOST_MB_S = 3.0
OURS_BESIDE = ("magpie", "chain", "mob")


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        multicast_drawing.by_size(found, network, folder / f"{network.replace(', ', '-').replace(' ', '-')}.png", f"{network}: one message to all hosts")
    multicast_drawing.write_tables(found, folder)


def crossover(found, network, line):
    """The least size from which on it is at least as fast as MagPIe at all larger ones."""
    least = None
    for size in reversed(found.sizes):
        ratio = found.ratio(network, "fast", line, "magpie", size)
        if ratio is None or ratio < 1:
            break
        least = size
    return least


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        for line in ("mob", "adaptive"):
            if found.row(network, "fast", line, found.sizes[-1]) is None or found.row(network, "fast", "magpie", found.sizes[-1]) is None:
                yield Claim(f"fourth experiment, {network}", f"{line} at least as fast as magpie", f"from {PAPER_CROSSOVER[network]}", "-",
                            NOT_AVAILABLE, "not measured")
                continue
            least = crossover(found, network, line)
            yield Claim(f"fourth experiment, {network}", f"{line} at least as fast as magpie", f"from {PAPER_CROSSOVER[network]}",
                        "never" if least is None else f"from {size_name(least)}",
                        REACHED if least is not None and least <= PAPER_BYTES[network] else NOT_REACHED)
        most = max((found.median(network, "fast", "magpie", size) or 0 for size in found.sizes), default=0)
        yield Claim(f"fourth experiment, {network}", "magpie: the most, which is the slowest link", f"{MAGPIE_MOST_MB_S:.2f} MB/s",
                    f"{most:.2f} MB/s", REACHED if most else NOT_AVAILABLE)
        for size in found.sizes:
            best = found.best(network, "fast", OURS_BESIDE, size)
            ours = found.ratio(network, "fast", "adaptive", best, size) if best else None
            yield demanded(f"{network}, {size_name(size)}", f"adaptive: rate over that of the best method ({best or '-'})", ours, least=0.9)
    yield best_everywhere("all", Results(rows))
