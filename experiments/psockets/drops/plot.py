"""Section 4: packets sent again by eight sockets, by one, and by one with a large window."""

from multirail_experiments import drawing
from multirail_experiments.claims import NO_VERDICT, Claim, judged
from multirail_experiments.drawing import plt
from multirail_experiments.plan import K
from multirail_experiments.stream import drawing as stream_drawing
from multirail_experiments.stream.claims import auto_claims
from multirail_experiments.stream.measure import AUTO
from multirail_experiments.stream.results import Streams, dropped_share, rate, resent_share

UNIT = 512 * K
DEEP = ", queue 1 MiB"
# Line, window, the paper's share of dropped packets in per cent, and its Mbit/s.
CASES = {
    "8 sockets, 64 KiB": ("equal-partition", "64 KiB", 0.03, 57),
    "iperf3 -P 8, 64 KiB": ("iperf3", "64 KiB", None, None),
    "1 socket, 64 KiB": ("single", "64 KiB", 0.02, 38),
    "1 socket, bandwidth · delay": ("single", "512 KiB", 0.07, 59),
    "the default, 64 KiB": ("adaptive", "64 KiB", None, None),
    "the default, bandwidth · delay": ("adaptive", "512 KiB", None, None),
}


def cases(streams, queue):
    for name, (line, window, paper_percent, paper_mbit_s) in CASES.items():
        row = streams.one(network=window + queue, line=line)
        if row:
            yield name, row, paper_percent, paper_mbit_s


def figures(rows, out):
    streams = Streams(rows)
    figure, panels = plt.subplots(2, 2, figsize=(11, 7), layout="constrained", squeeze=False)
    for (left, right), (queue, title) in zip(
        panels, (("", "queue of a round trip"), (DEEP, "queue of 1 MiB"))
    ):
        found = list(cases(streams, queue))
        if not found:
            left.set_axis_off()
            right.set_axis_off()
            continue
        places = range(len(found))
        names = [
            name.replace(", ", "\n").replace(" ·", "\n·")
            + ("\n(" + ended_with(row) + ")" if row["channels"] == AUTO else "")
            for name, row, _, _ in found
        ]
        for axes, values, papers, label in (
            (
                left,
                [100 * resent_share(row) for _, row, _, _ in found],
                [percent for _, _, percent, _ in found],
                "sent again, %",
            ),
            (
                right,
                [rate(row) for _, row, _, _ in found],
                [mbit_s for _, _, _, mbit_s in found],
                stream_drawing.RATE,
            ),
        ):
            axes.bar(
                places,
                values,
                color=[
                    drawing.STYLES["adaptive"][0]
                    if "default" in name
                    else drawing.style_of(row["line"], [row["line"]])[0]
                    for name, row, _, _ in found
                ],
                alpha=0.8,
            )
            for place, value in zip(places, values):
                axes.annotate(
                    f"{value:.2f}" if axes is left else f"{value:.0f}",
                    (place, value),
                    textcoords="offset points",
                    xytext=(0, 3),
                    ha="center",
                    fontsize=8,
                )
            marks = [(place, paper) for place, paper in zip(places, papers) if paper is not None]
            axes.plot(
                *zip(*marks),
                "D",
                color="black",
                markerfacecolor="white",
                markersize=7,
                label="paper",
            )
            axes.set_xticks(places, names, fontsize=7.5)
            axes.set_ylabel(label)
            axes.set_title(f"{title}: {label.split(',')[0]}", fontsize=10)
            axes.legend(fontsize=8, frameon=False)
            drawing.frame(axes)
    figure.savefig(out / "drops.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    stream_drawing.over_time(streams, out / "over-time.png")
    stream_drawing.cpu(streams, out / "cpu.png")


def ended_with(row):
    return (
        " and ".join(str(repeat["flows"][0]["interval_channels"][-1]) for repeat in row["repeats"])
        + " channels"
    )


def claims(rows):
    streams = Streams(rows)
    result = []
    for queue in ("", DEEP):
        found = {name: row for name, row, _, _ in cases(streams, queue)}
        where = f"packet drops{queue}"
        for name, row, percent, mbit_s in cases(streams, queue):
            result.append(resent_claim(where, name, row, percent, mbit_s))
        eight, tuned = found.get("8 sockets, 64 KiB"), found.get("1 socket, bandwidth · delay")
        if eight and tuned:
            result.append(
                Claim(
                    where,
                    "8 sockets' rate over that of one tuned socket",
                    f"{57 / 59:.2f}",
                    f"{rate(eight) / rate(tuned):.2f}",
                    judged(rate(eight) / rate(tuned) >= 57 / 59),
                )
            )
    for found in streams.all_found():
        result += auto_claims(
            f"packet drops{DEEP if DEEP in found.network else ''}",
            found,
            f"windows of {found.network.removesuffix(DEEP)}",
            link=found.network == "64 KiB",
        )
    return result


def resent_claim(where, name, row, percent, mbit_s):
    dropped, resent = dropped_share(row), 100 * resent_share(row)
    note = f"the rail dropped {'-' if dropped is None else f'{100 * dropped:.3f} %'}"
    text, measured = f"{name}: sent again", f"{resent:.3f} %, {rate(row):.1f} Mbit/s"
    if percent is not None:
        note += f"; paper: {mbit_s} Mbit/s"
        is_reached = round(resent, 2) <= percent
        return Claim(where, text, f"{percent:.2f} %", measured, judged(is_reached), note)
    if row["channels"] == AUTO:
        note += f"; ended with {ended_with(row)}"
    return Claim(where, text, "", measured, NO_VERDICT, f"shown for comparison; {note}")
