"""Hosts with several ports: a group of bars for each network, beside the bound of all ports."""

from multirail_experiments import drawing
from multirail_experiments.claims import demanded, not_measured
from multirail_experiments.drawing import plt
from multirail_experiments.lab import mbit_s
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.claims import ratio_claim, share_claim
from multirail_experiments.multicast.results import Broadcasts
from multirail_experiments.points import best_everywhere

SCENARIO, WHERE = "constant", "several rails"
OURS, BEST_RAIL = "adaptive", "adaptive, best rail"
PEERS = ["libtorrent, tuned", "Open MPI", "Open MPI, chain"]
LEAST_SHARE = 0.9
# A copy to the other cluster is 1.046 in frames, and acknowledgements are 0.024.
MOST_COPIES = 1.12


def figures(rows, folder):
    found = Broadcasts(rows)
    figure, axes = plt.subplots(figsize=(max(6.0, 1.9 * len(found.networks)), 4.4))
    width = 0.86 / max(len(found.lines), 1)
    for place, network in enumerate(found.networks):
        bound = found.bound_mb_s(network, SCENARIO)
        label = "bound, all ports" if place == 0 else None
        axes.hlines(bound, place - 0.45, place + 0.45, label=label, **multicast_drawing.BOUND)
        for number, line in enumerate(found.lines):
            row = found.row(network, SCENARIO, line)
            if row is None:
                continue
            x = place + (number - (len(found.lines) - 1) / 2) * width
            rate = found.median(network, SCENARIO, line)
            spread = [[rate - min(row["mb_s"])], [max(row["mb_s"]) - rate]]
            axes.bar(x, rate, width, color=multicast_drawing.color(line))
            axes.errorbar(x, rate, spread, color="black", linewidth=0.8)
            axes.text(
                x,
                max(row["mb_s"]),
                f" {found.share(network, SCENARIO, line):.2f}"
                f"{found.dagger(network, SCENARIO, line)}",
                rotation=90,
                ha="center",
                va="bottom",
                fontsize=7,
            )
    for line in found.lines:
        axes.bar(0, 0, color=multicast_drawing.color(line), label=line)
    axes.set_xticks(
        range(len(found.networks)), [name.replace(", ", "\n") for name in found.networks]
    )
    axes.set_ylabel("MB/s to the last host")
    axes.set_title(
        "One file to all hosts, ports in Mbit/s\n"
        "above bars: share of the bound; †: the CPU was the limit",
        fontsize=10.5,
    )
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.margins(y=0.15)
    drawing.frame(axes)
    multicast_drawing.finish(figure, folder / "rails.png")
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        yield share_claim(found, WHERE, network, SCENARIO, OURS, LEAST_SHARE)
        yield gain_claim(found, rows, network)
        yield ratio_claim(found, WHERE, network, SCENARIO, OURS, PEERS, 1.0)
        copies = found.median(network, SCENARIO, OURS, field="wan_copies")
        if copies:
            yield demanded(
                f"{WHERE}: {network}",
                f"{OURS}: frames between clusters, in files",
                copies,
                most=MOST_COPIES,
                runs=found.runs(network, SCENARIO, OURS),
            )
    yield best_everywhere(WHERE, rows)


def ideal_gain(rows, network):
    """The rate of all rails over that of the best one; None without the run's plan."""
    plan = next((row for row in rows if row["kind"] == "plan"), {"network": []})
    rates = [
        [mbit_s(rate) for rate in one["rails"]] for one in plan["network"] if one["name"] == network
    ]
    return sum(rates[0]) / max(rates[0]) if rates else None


def gain_claim(found, rows, network):
    ideal = ideal_gain(rows, network)
    if ideal is None:
        return not_measured(f"{WHERE}: {network}", f"{OURS}: rate over that of {BEST_RAIL}")
    least = LEAST_SHARE * ideal
    return ratio_claim(found, WHERE, network, SCENARIO, OURS, BEST_RAIL, least)
