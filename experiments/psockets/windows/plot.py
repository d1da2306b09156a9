"""Figures 4 and 5: sockets of two windows, and eight sockets with windows of any size."""

from multirail_experiments import drawing
from multirail_experiments.claims import NO_VERDICT, Claim, compare, judged
from multirail_experiments.plan import K, size_bytes
from multirail_experiments.stream import drawing as stream_drawing
from multirail_experiments.stream.claims import auto_claims
from multirail_experiments.stream.drawing import Plot
from multirail_experiments.stream.results import LINK_MBIT_S, Streams, rate

UNIT, FIGURE_4 = 8 * K, 64 * K
SOCKETS = 8
# Windows of figure 4, and the most that the paper has with them.
PAPER = {"64 KiB": 57.7, "256 KiB": 67.7}
PAPER_IPERF_256K = 47.7
PAPER_BEST_WINDOW = "512 KiB"
ROUND_TRIP_S = 0.020


def window_bytes(network):
    return size_bytes(network.replace(" KiB", "k").replace(" MiB", "m"))


def figures(rows, out):
    streams = Streams(rows)
    plot = Plot("Figure 4: windows of 64 and 256 KiB", "sockets (channels)")
    for index, (network, paper) in enumerate(PAPER.items()):
        color = drawing.MORE_COLORS[index]
        plot.rows(
            streams.select(network=network, line="equal-partition", message_bytes=FIGURE_4),
            "equal-partition",
            f"equal-partition (PSockets), {network}",
            (color, "-", "D"),
        )
        plot.level(paper, f"paper: PSockets' most, {network}: {paper}", color)
        plot.auto(streams.found(network, UNIT), color=color, label=f"adaptive by itself, {network}")
    single = streams.one(network="256 KiB", line="iperf3")
    if single:
        plot.paper(
            {1: rate(single)},
            f"iperf3 -P 1, 256 KiB: {rate(single):.1f} (paper: {PAPER_IPERF_256K})",
            drawing.style_of("iperf3", [])[0],
        )
    plot.link()
    plot.save(out / "figure-04.png", top=108)

    plot = Plot(
        f"Figure 5: {SOCKETS} sockets, windows of any size",
        "window, bytes (k = KiB, M = MiB)",
        log=True,
    )
    styles = {
        "equal-partition": f"equal-partition (PSockets), {SOCKETS} sockets",
        "iperf3": "iperf3, one connection",
    }
    for line, label in styles.items():
        found = {
            window_bytes(row["network"]): rate(row)
            for row in streams.select(line=line, message_bytes=UNIT)
            if row["channels"] == (SOCKETS if line == "equal-partition" else 1)
        }
        color, dashes, marker, _ = drawing.style_of(line, [line])
        plot.line(found, label, (color, dashes, marker))
    auto = {window_bytes(network): streams.found(network, UNIT) for network in streams.networks}
    auto = {window: found for window, found in auto.items() if found}
    plot.line(
        {window: found.rate_mbit_s for window, found in auto.items()},
        "adaptive, number found by itself (named: the number)",
        (stream_drawing.AUTO_COLOR, "-", "*"),
    )
    for window, found in auto.items():
        plot.axes.annotate(
            found.ended_with(),
            (window, found.rate_mbit_s),
            textcoords="offset points",
            xytext=(0, 8),
            ha="center",
            fontsize=8,
            color=stream_drawing.AUTO_COLOR,
        )
    plot.link()
    plot.save(out / "figure-05.png", names=drawing.short_size, top=108)

    stream_drawing.over_time(streams, out / "over-time.png", lambda row: f"window {row['network']}")
    stream_drawing.cpu(streams, out / "cpu.png")


def claims(rows):
    streams = Streams(rows)
    result = []
    for network, paper in PAPER.items():
        fixed = streams.rates(network=network, line="equal-partition", message_bytes=FIGURE_4)
        if fixed:
            best = max(fixed, key=fixed.get)
            result.append(
                compare(
                    "figure 4",
                    f"PSockets' most, windows of {network}",
                    paper,
                    fixed[best],
                    unit="Mbit/s",
                    digits=1,
                    note=f"with {best} sockets",
                )
            )
    single = streams.one(network="256 KiB", line="iperf3")
    if single:
        result.append(
            Claim(
                "figure 4",
                "one connection of Iperf, 256 KiB",
                f"{PAPER_IPERF_256K} Mbit/s",
                f"{rate(single):.1f} Mbit/s",
                NO_VERDICT,
                "shown for comparison: the paper suspects a defect of driver or network",
            )
        )
    eight = {
        network: rate(row)
        for network in streams.networks
        if (
            row := streams.one(
                network=network, line="equal-partition", message_bytes=UNIT, channels=SOCKETS
            )
        )
    }
    iperf3 = {
        network: rate(row)
        for network in streams.networks
        if (row := streams.one(network=network, line="iperf3"))
    }
    if PAPER_BEST_WINDOW in eight:
        best = max(eight, key=eight.get)
        near = eight[PAPER_BEST_WINDOW] / eight[best]
        result.append(
            Claim(
                "figure 5",
                f"{SOCKETS} sockets: the best window",
                PAPER_BEST_WINDOW,
                f"{best}; {near:.2f} of it with 512 KiB",
                judged(near >= 0.95),
                f"the product of bandwidth and delay here: 250 kB; link {LINK_MBIT_S}",
            )
        )
        small = [network for network in eight if window_bytes(network) <= 64 * K]
        least = min(eight[network] / iperf3[network] for network in small)
        result.append(
            Claim(
                "figure 5",
                f"{SOCKETS} sockets over Iperf where windows are small, least ratio",
                "> 1",
                f"{least:.2f}",
                judged(least > 1),
                "up to 64 KiB; the paper's difference narrows with larger windows",
            )
        )
        last = eight["4 MiB"] / iperf3["4 MiB"]
        result.append(
            Claim(
                "figure 5",
                f"{SOCKETS} sockets over Iperf, windows of 4 MiB",
                "> 1, narrow",
                f"{last:.2f}",
                judged(last >= 0.95),
                "one connection without a defect fills the link",
            )
        )
    for network in streams.networks:
        found = streams.found(network, UNIT)
        if found:
            # With smaller windows, not even 16 channels fill the link.
            result += auto_claims(
                "figure 5", found, f"windows of {network}", link=window_bytes(network) >= 64 * K
            )
    return [*result, *window_claims(streams)]


def window_claims(streams):
    """What the kernel makes of a limit; the paper has no number, so there is no verdict."""
    for network in streams.networks:
        row = streams.one(network=network, line="iperf3")
        if row and window_bytes(network) <= 256 * K:
            held = rate(row) * 1e6 / 8 * ROUND_TRIP_S
            offered = max(repeat["window_bytes"] or 0 for repeat in row["repeats"])
            yield Claim(
                "figure 5",
                f"what Linux makes of a window of {network}",
                "",
                f"{held / K:.1f} KiB a round trip",
                NO_VERDICT,
                f"the receiver offered {offered / K:.1f} KiB at most; the limit is one of memory, "
                "and headers of packets count",
            )
