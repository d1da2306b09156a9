"""Figures 15, 22 and 23: what parallel programs exchange, with more ranks and with more ports."""

from multirail_experiments import drawing
from multirail_experiments.claims import NO_VERDICT, Claim, Source, compare, demanded, judged
from multirail_experiments.drawing import plt
from multirail_experiments.placement import drawing as placement_drawing
from multirail_experiments.placement.claims import PAPER, PAPER_OTHERS
from multirail_experiments.placement.results import Placements

PORTS = {2: "2 ports", 4: "4 ports", 6: "6 ports"}
NAMES = {
    "ft": "FT: all to all",
    "is": "IS: bucket sort",
    "cg": "CG: butterfly",
    "lu": "LU: neighbours",
}
# The paper's rates over the second best of its four methods, and its processes on each host: as
# many as cores, or half of them.
PAPER_TIMES = {"is": (2.04, 8), "ft": (1.67, 8), "lu": (1.33, 4), "cg": (1.25, 4)}
# Ranks on each of four hosts, which share two processors.
RANKS = 4
COLUMNS = (
    ("rate_mbit_s", "Mbit/s", "{:.0f}", 1),
    ("iteration_ms", "iteration, ms", "{:.2f}", 1),
    ("cpu_idle_share", "idle", "{:.2f}", 1),
)


def figures(rows, folder):
    found = Placements(rows)
    bars(found, folder / "figure-15.png")
    over_ports(found, folder / "figure-22-23.png")
    placement_drawing.write_tables(found, folder, COLUMNS)


def bars(found, path):
    network = found.networks[0]
    lines = found.lines_of(network)
    figure, panels = plt.subplots(
        1,
        len(found.patterns),
        figsize=(1 + 3.6 * len(found.patterns), 4.2),
        layout="constrained",
        squeeze=False,
    )
    for axes, kernel in zip(panels[0], found.patterns):
        width = 0.85 / len(lines)
        ranks = found.streams(network, kernel)
        for number, line in enumerate(lines):
            values = [found.ratio((network, kernel, count), line, "single") or 0 for count in ranks]
            axes.bar(
                [place + (number - (len(lines) - 1) / 2) * width for place in range(len(ranks))],
                values,
                width,
                color=placement_drawing.color(line),
                label=placement_drawing.LABELS.get(line, line),
            )
        axes.axhline(1, color="black", linewidth=1, linestyle=":")
        axes.set_xticks(range(len(ranks)), [f"{count}p" for count in ranks])
        axes.set_title(NAMES.get(kernel, kernel), fontsize=10)
        drawing.frame(axes)
    panels[0][0].set_ylabel("rate over that of one port")
    figure.suptitle(
        f"Open MPI between 4 hosts, {network} of 100 Mbit/s; ranks on each host (figure 15)",
        fontsize=11,
    )
    placement_drawing.finish(figure, panels[0][0], path)


def over_ports(found, path):
    networks = {ports: name for ports, name in PORTS.items() if name in found.networks}
    if len(networks) < 2:
        return
    count = found.streams(PORTS[2], found.patterns[0])[0]
    figure, panels = plt.subplots(
        1,
        len(found.patterns),
        figsize=(1 + 3.2 * len(found.patterns), 3.8),
        layout="constrained",
        squeeze=False,
    )
    for axes, kernel in zip(panels[0], found.patterns):
        for line in found.lines_of(PORTS[2]):
            rates = {
                ports: found.median((name, kernel, count), line) for ports, name in networks.items()
            }
            rates = {ports: rate for ports, rate in rates.items() if rate is not None}
            axes.plot(
                list(rates),
                list(rates.values()),
                label=placement_drawing.LABELS.get(line, line),
                **placement_drawing.style(line),
            )
        axes.set_xticks(list(networks))
        axes.set_ylim(bottom=0)
        axes.set_title(NAMES.get(kernel, kernel), fontsize=10)
        axes.set_xlabel("ports a host")
        axes.grid(True, color="#dddddd", linewidth=0.7)
        drawing.frame(axes)
    panels[0][0].set_ylabel("payload between ranks, Mbit/s")
    figure.suptitle(
        f"More and fewer ports, {count} ranks on each of 4 hosts (figures 22 and 23)", fontsize=11
    )
    placement_drawing.finish(figure, panels[0][0], path)


def claims(rows):
    found = Placements(rows)
    network = found.networks[0] if found.networks else None
    for kernel, (paper, paper_ranks) in PAPER_TIMES.items():
        place = (network, kernel, RANKS)
        second = found.best(place, PAPER_OTHERS)
        for line in (PAPER, "adaptive"):
            ours = None if second is None else found.ratio(place, line, second)
            text = (
                f"{NAMES[kernel]}, {RANKS} ranks a host (the paper: {paper_ranks}): {line} over "
                f"the best of {', '.join(PAPER_OTHERS)}"
            )
            note = f"over {second}{found.dagger(place, line)}; the paper's programs also compute"
            yield compare("figure 15", text, paper, ours, note=note)
    for place in found.places(network):
        best = found.best(place, [line for line in found.lines if line != "adaptive"])
        yield demanded(
            "figure 15",
            f"{NAMES[place[1]]}, {place[2]} ranks a host: adaptive over the best other line",
            None if best is None else found.ratio(place, "adaptive", best),
            least=0.97,
            note=f"over {best}{found.dagger(place, 'adaptive')}",
            source=Source.PEER,
        )
    for kernel in ("ft", "is"):
        for line in (PAPER, "adaptive"):
            rates = [found.median((name, kernel, RANKS), line) for name in PORTS.values()]
            if None in rates:
                yield Claim(
                    "figures 22 and 23",
                    f"{NAMES[kernel]}, {line}: more ports are faster",
                    "by figure",
                    "-",
                    NO_VERDICT,
                    "not measured",
                )
                continue
            text = ", ".join(f"{rate:.0f}" for rate in rates)
            yield Claim(
                "figures 22 and 23",
                f"{NAMES[kernel]}, {line}: Mbit/s with {', '.join(map(str, PORTS))} ports grow",
                "by figure",
                text,
                judged(rates == sorted(rates)),
            )
