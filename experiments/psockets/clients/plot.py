"""Figure 6: several clients with eight sockets each; and a single stream beside one client."""

import statistics

from multirail_experiments import drawing
from multirail_experiments.claims import NO_VERDICT, Claim, Source, judged, number
from multirail_experiments.drawing import plt
from multirail_experiments.stream import drawing as stream_drawing
from multirail_experiments.stream.drawing import Plot
from multirail_experiments.stream.measure import AUTO
from multirail_experiments.stream.results import Streams, fairness, flow_rates, rate, steady

LIMITED = "64 KiB"
SOCKETS = 8
PAPER_PEAK_CLIENTS = 7


def shares(row):
    """Jain's index of the clients."""
    return statistics.median(fairness(flow_rates(row, repeat)) for repeat in row["repeats"])


def beside_rate(row):
    return statistics.median(
        steady(repeat["beside"], row["from_s"], row["seconds"]) for repeat in row["repeats"]
    )


def kept(row):
    """The single stream's share of everything that was carried."""
    return beside_rate(row) / (beside_rate(row) + rate(row))


def figures(rows, out):
    streams = Streams(rows)
    plot = Plot(
        f"Figure 6: several clients, {SOCKETS} sockets each, windows of 64 KiB",
        "clients",
        "payload of all clients, Mbit/s",
    )
    fixed = streams.select(line="equal-partition", beside=False)
    auto = streams.select(line="adaptive", channels=AUTO, beside=False)
    plot.rows(
        fixed, "equal-partition", f"equal-partition (PSockets), {SOCKETS} sockets each", x="clients"
    )
    plot.rows(auto, "adaptive", "adaptive, number found by itself", x="clients")
    for above, group in ((True, fixed), (False, auto)):
        for row in group:
            if row["clients"] > 1:
                plot.axes.annotate(
                    f"{shares(row):.3f}",
                    (row["clients"], rate(row)),
                    textcoords="offset points",
                    xytext=(0, 8 if above else -15),
                    ha="center",
                    fontsize=7.5,
                )
    plot.axes.axvline(
        PAPER_PEAK_CLIENTS,
        color="black",
        linewidth=1,
        linestyle="--",
        label="paper: grows until 7 clients, then drops",
    )
    plot.axes.plot([], [], " ", label="named: Jain's fairness of the clients")
    plot.link()
    plot.save(out / "figure-06.png", top=112)

    draw_beside(streams, out / "competing.png")
    stream_drawing.cpu(streams, out / "cpu.png")


def draw_beside(streams, path):
    rows = streams.select(beside=True)
    names = [f"{row['network']}\n{row['line'].split(',')[0]}\n{ended_with(row)}" for row in rows]
    figure, axes = plt.subplots(figsize=(8.6, 4.6))
    ours, theirs = [rate(row) for row in rows], [beside_rate(row) for row in rows]
    axes.bar(
        range(len(rows)), ours, color=drawing.STYLES["adaptive"][0], alpha=0.8, label="multirail"
    )
    axes.bar(
        range(len(rows)),
        theirs,
        bottom=ours,
        color="#c0392b",
        alpha=0.8,
        label="a single stream (iperf3) beside; named: its share",
    )
    for place, row in enumerate(rows):
        axes.text(
            place, ours[place] + theirs[place] + 1, f"{kept(row):.2f}", ha="center", fontsize=9
        )
    axes.set_xticks(range(len(rows)), names, fontsize=7.5)
    axes.set_ylabel(stream_drawing.RATE)
    axes.set_title("One client and a single stream at the same time", fontsize=11)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8.5, frameon=False
    )
    drawing.frame(axes)
    drawing.save(figure, path)


def ended_with(row):
    """The number of channels; one number a repeat where it was found."""
    if row["channels"] != AUTO:
        return f"{row['channels']} ch"
    return "auto: " + " and ".join(
        str(repeat["flows"][0]["interval_channels"][-1]) for repeat in row["repeats"]
    )


def claims(rows):
    streams = Streams(rows)
    fixed = {row["clients"]: row for row in streams.select(line="equal-partition", beside=False)}
    aggregate = {clients: rate(row) for clients, row in fixed.items()}
    result = []
    if len(fixed) > 2:
        best = max(aggregate, key=aggregate.get)
        last = max(aggregate)
        result += [
            Claim(
                "figure 6",
                "the most of all clients together",
                f"with {PAPER_PEAK_CLIENTS} clients, then less",
                f"{aggregate[best]:.1f} Mbit/s with {best}; {aggregate[last]:.1f} with {last}",
                judged(aggregate[last] >= 0.95 * aggregate[best]),
                "reached if ten clients have at least 0.95 of the most: the paper blames its "
                "driver, with 64 sockets, for the drop",
            ),
            Claim(
                "figure 6",
                "clients have equal shares: least fairness",
                "nearly equal",
                f"{min(map(shares, fixed.values())):.3f}",
                judged(min(map(shares, fixed.values())) >= 0.95),
                "Jain's index, 1 is equal; reached from 0.95",
            ),
        ]
    several = [
        row
        for row in streams.select(line="adaptive", channels=AUTO, beside=False)
        if row["clients"] > 1
    ]
    for row in several:
        result.append(
            Claim(
                "figure 6",
                f"the default, {row['clients']} clients: fairness",
                "nearly equal",
                f"{shares(row):.3f}",
                judged(shares(row) >= 0.95),
                f"{rate(row):.1f} Mbit/s together; ended with "
                + ", ".join(
                    str(flow["interval_channels"][-1]) for flow in row["repeats"][-1]["flows"]
                )
                + " channels",
                source=Source.LIMIT,
            )
        )
    for row in streams.select(beside=True):
        result.append(beside_claim(row))
    return result


def beside_claim(row):
    where, note = (
        "section 4 e",
        f"{rate(row):.1f} and {beside_rate(row):.1f} Mbit/s; {ended_with(row)}",
    )
    text = (
        f"a single stream's share beside {row['line'].split(',')[0]}, {row['channels']} channels, "
        f"{row['network']}"
    )
    if (row["channels"], row["network"]) == (SOCKETS, LIMITED):
        return Claim(
            where,
            text,
            f"1/9 = {1 / 9:.2f}",
            number(kept(row)),
            judged(abs(kept(row) - 1 / 9) <= 0.04),
            f"{note}; reached within 0.04",
        )
    return Claim(where, text, "", number(kept(row)), NO_VERDICT, f"shown for comparison: {note}")
