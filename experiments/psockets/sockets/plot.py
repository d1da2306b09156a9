"""Figures 2 and 3: throughput by number of sockets, for one amount of data and for others."""

from multirail_experiments import drawing
from multirail_experiments.claims import Claim, Source, compare, demanded, judged
from multirail_experiments.plan import K, M, size_name
from multirail_experiments.stream import drawing as stream_drawing
from multirail_experiments.stream.claims import auto_claims
from multirail_experiments.stream.drawing import Plot
from multirail_experiments.stream.results import Streams, rate

NETWORK, UNIT = "64 KiB", 64 * K
PAPER_BEST, PAPER_MBIT_S, PAPER_RANGE = 12, 76.0, (6, 16)
OTHER_SIZES = (1 * K, 8 * K, 64 * K, 512 * K, 4 * M)
LINES = ("equal-partition", "adaptive", "iperf3")
# Rates within this share of the best count as equal.
AS_GOOD = 0.95


def figures(rows, out):
    streams = Streams(rows)
    plot = Plot(
        "Figure 2: windows of 64 KiB, 100 Mbit/s, round trip 20 ms",
        "sockets (channels, connections)",
    )
    low, high = PAPER_RANGE
    plot.axes.axvspan(
        low, high, color="#000000", alpha=0.05, label=f"paper: best between {low} and {high}"
    )
    for line in LINES:
        plot.rows(
            streams.select(network=NETWORK, line=line, message_bytes=UNIT),
            line,
            {
                "adaptive": "adaptive, a fixed number",
                "equal-partition": "equal-partition (PSockets)",
            }.get(line),
        )
    plot.paper({PAPER_BEST: PAPER_MBIT_S}, "paper: PSockets' best")
    plot.auto(streams.found(NETWORK, UNIT), above=False)
    plot.link()
    plot.save(out / "figure-02.png", top=108)

    plot = Plot("Figure 3: PSockets with other amounts of data", "sockets (channels)")
    for index, size in enumerate(OTHER_SIZES):
        style = (drawing.MORE_COLORS[index], "-", drawing.MORE_MARKERS[index])
        plot.rows(
            streams.select(network=NETWORK, line="equal-partition", message_bytes=size),
            "equal-partition",
            f"equal-partition, {size_name(size)}",
            style,
        )
        found = streams.found(NETWORK, size)
        plot.auto(found, color=style[0], label=f"adaptive by itself, {size_name(size)}", text="")
    plot.link()
    plot.save(out / "figure-03.png", top=108)

    stream_drawing.over_time(
        streams, out / "over-time.png", lambda row: f"{size_name(row['message_bytes'])} units"
    )
    stream_drawing.cpu(streams, out / "cpu.png")


def claims(rows):
    streams = Streams(rows)
    fixed = streams.rates(network=NETWORK, line="equal-partition", message_bytes=UNIT)
    best = max(fixed, key=fixed.get)
    good = [number for number, value in sorted(fixed.items()) if value >= AS_GOOD * fixed[best]]
    low, high = PAPER_RANGE
    result = [
        compare(
            "figure 2",
            "PSockets' most",
            PAPER_MBIT_S,
            fixed[best],
            unit="Mbit/s",
            digits=1,
            note=f"with {best} sockets",
        ),
        Claim(
            "figure 2",
            "numbers of sockets with the most",
            f"{PAPER_BEST} ({low} to {high})",
            ", ".join(map(str, good)),
            judged(any(low <= number <= high for number in good)),
            f"within {1 - AS_GOOD:.0%} of the best",
        ),
        compare(
            "figure 2",
            f"PSockets with {best} sockets over one socket",
            PAPER_MBIT_S / 38,
            fixed[best] / fixed[1],
            note="the paper's one socket, from its packet drops: 38 Mbit/s",
        ),
    ]
    iperf3 = streams.rates(network=NETWORK, line="iperf3", message_bytes=UNIT)
    if iperf3:
        most = max(iperf3, key=iperf3.get)
        result.append(
            demanded(
                "figure 2",
                "the default's most over that of iperf3, whatever its number",
                streams.found(NETWORK, UNIT).rate_mbit_s / iperf3[most],
                least=0.95,
                note=f"iperf3 -P {most}: {iperf3[most]:.1f} Mbit/s",
                source=Source.PEER,
            )
        )
    result += figure_3(streams)
    for found in sorted(streams.all_found(), key=lambda found: found.message_bytes):
        result += auto_claims(
            "figure 2" if found.message_bytes == UNIT else "figure 3",
            found,
            size_name(found.message_bytes),
        )
    return result


def figure_3(streams):
    """The spread of rates over amounts of data, for the number of sockets where it is largest."""
    spreads = {}
    for number in (4, 8, 12):
        rates = [
            rate(row)
            for size in OTHER_SIZES
            if (
                row := streams.one(
                    network=NETWORK, line="equal-partition", message_bytes=size, channels=number
                )
            )
        ]
        if len(rates) == len(OTHER_SIZES):
            spreads[number] = min(rates) / max(rates)
    if spreads:
        worst = min(spreads, key=spreads.get)
        yield Claim(
            "figure 3",
            "the amount of data does not matter: least over most of 1 KiB to 4 MiB",
            "about 1",
            f"{spreads[worst]:.2f}",
            judged(spreads[worst] >= 0.85),
            f"with {worst} sockets; reached from 0.85",
        )
