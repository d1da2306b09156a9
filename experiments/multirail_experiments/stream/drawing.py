"""Figures of streams: over the number of channels or of clients, or over time."""

from multirail_experiments import drawing
from multirail_experiments.drawing import plt
from multirail_experiments.host import is_limit
from multirail_experiments.stream.measure import AUTO
from multirail_experiments.stream.results import FOUND_S, LINK_MBIT_S, rate, repeat_rates

AUTO_COLOR = "#1f6fb2"
RATE = "payload, Mbit/s"
drawing.STYLES.setdefault("iperf3", ("#c0392b", "-", "v", "iperf3, as many connections"))


class Plot:
    """One panel with lines over numbers."""

    def __init__(self, title, x_label, y_label=RATE, axes=None, log=False):
        self.figure, self.axes = (
            (axes.figure, axes) if axes is not None else plt.subplots(figsize=(7.6, 4.6))
        )
        self.axes.set_title(title, fontsize=11)
        self.axes.set_xlabel(x_label)
        self.axes.set_ylabel(y_label)
        self.axes.grid(True, color="#dddddd", linewidth=0.7)
        if log:
            self.axes.set_xscale("log", base=2)
        self.ticks = set()
        drawing.frame(self.axes)

    def line(self, points, label, style):
        if points:
            color, dashes, marker = style
            self.ticks.update(points)
            places = sorted(points)
            self.axes.plot(
                places,
                [points[place] for place in places],
                dashes,
                color=color,
                marker=marker,
                markersize=4.5,
                linewidth=1.7,
                label=label,
            )

    def rows(self, rows, line, label=None, style=None, x="channels"):
        """Draws medians of rows over one of their keys, with the range of their repeats."""
        rows = [row for row in rows if row["channels"] != AUTO or x != "channels"]
        color, dashes, marker, known_as = drawing.style_of(line, [line])
        self.line(
            {row[x]: rate(row) for row in rows}, label or known_as, style or (color, dashes, marker)
        )
        if rows:
            rows = sorted(rows, key=lambda row: row[x])
            bands = [repeat_rates(row) for row in rows]
            self.axes.fill_between(
                [row[x] for row in rows],
                [min(band) for band in bands],
                [max(band) for band in bands],
                color=(style or (color,))[0],
                alpha=0.12,
                linewidth=0,
            )

    def auto(
        self,
        found,
        place=None,
        color=AUTO_COLOR,
        label="adaptive, number found by itself",
        text=None,
        above=True,
    ):
        """Marks the number of channels that was found with a star, and its share of the best."""
        if found is None:
            return
        place = place if place is not None else max(found.channels)
        self.ticks.add(place)
        self.axes.plot(
            [place],
            [found.rate_mbit_s],
            "*",
            color=color,
            markersize=15,
            markeredgecolor="black",
            markeredgewidth=0.7,
            label=label,
            zorder=5,
        )
        self.axes.annotate(
            worth(found) if text is None else text,
            (place, found.rate_mbit_s),
            textcoords="offset points",
            xytext=(0, 11 if above else -19),
            ha={max(self.ticks): "right", min(self.ticks): "left"}.get(place, "center"),
            fontsize=8,
        )

    def paper(self, points, label, color="black"):
        self.ticks.update(points)
        self.axes.plot(
            list(points),
            list(points.values()),
            "D",
            color=color,
            markersize=8,
            markerfacecolor="white",
            markeredgewidth=1.3,
            label=label,
            zorder=4,
        )

    def level(self, value, label, color="#888888"):
        self.axes.axhline(value, color=color, linewidth=1, linestyle=":", label=label)

    def link(self):
        self.level(LINK_MBIT_S, f"the link: {LINK_MBIT_S}")

    def finish(self, names=str, bottom=0, top=None):
        ticks = sorted(self.ticks)
        self.axes.set_xticks(ticks, [names(tick) for tick in ticks])
        self.axes.minorticks_off()
        if bottom is not None:
            self.axes.set_ylim(bottom=bottom)
        if top is not None:
            self.axes.set_ylim(top=top)

    def save(self, path, **options):
        self.finish(**options)
        drawing.save(self.figure, path)


def worth(found):
    of_best = "" if found.share_of_best is None else f", {found.share_of_best:.2f} of best"
    return f"{found.ended_with()} ch{of_best}"


def panels(count, columns=3):
    """Panels beside each other; the last ones of a row may be empty."""
    columns = min(columns, count)
    lines = -(-count // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.4 * columns, 3.5 * lines), squeeze=False)
    flat = list(axes.flat)
    for empty in flat[count:]:
        empty.set_axis_off()
    return figure, flat[:count]


def save_panels(figure, axes, path):
    """Saves panels with one legend for all."""
    handles, labels = axes[0].get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=3,
        fontsize=8.5,
        frameon=False,
    )
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def over_time(streams, path, names=None):
    """Draws rate and number of channels by time for `auto`, of the last repeat."""
    rows = [
        row
        for row in streams.rows
        if row["channels"] == AUTO and row["clients"] == 1 and not row["beside"]
    ]
    rows.sort(key=lambda row: (streams.networks.index(row["network"]), row["message_bytes"]))
    if not rows:
        return
    figure, axes = panels(len(rows))
    for row, one in zip(rows, axes):
        flow = row["repeats"][-1]["flows"][0]
        # The receiver counts from its first message on, and the sender from its own.
        count = min(len(flow["interval_channels"]), len(flow["interval_mbit_s"]) - 1)
        ends = [(index + 1) * flow["interval_s"] for index in range(count)]
        title = names(row) if names else row["network"]
        plot = Plot(title, "s of transfer", axes=one)
        one.plot(
            ends,
            flow["interval_mbit_s"][:count],
            color=AUTO_COLOR,
            linewidth=1.5,
            label="adaptive, number found by itself",
        )
        best = streams.best_fixed(row["network"], row["message_bytes"])
        if best:
            one.axhline(
                rate(best),
                color="#555555",
                linestyle="--",
                linewidth=1.2,
                label="the best fixed number's rate",
            )
            one.annotate(
                f"{best['channels']} channels, {best['line']}",
                (ends[-1], rate(best)),
                ha="right",
                fontsize=7.5,
                textcoords="offset points",
                xytext=(0, 4),
                color="#555555",
            )
        one.axvline(
            FOUND_S,
            color="#888888",
            linestyle=":",
            linewidth=1,
            label=f"{FOUND_S:.0f} s: by when the number is to be found",
        )
        one.set_ylim(0, 1.25 * max(*flow["interval_mbit_s"], rate(best) if best else 0))
        channels = one.twinx()
        channels.step(
            ends, flow["interval_channels"][:count], where="pre", color="#d98200", linewidth=1.3
        )
        channels.set_ylim(0, 17)
        channels.set_yticks([1, 2, 4, 8, 16])
        channels.set_ylabel("channels", color="#d98200")
        one.plot([], [], color="#d98200", label="its number of channels (right)")
        found = streams.found(row["network"], row["message_bytes"])
        one.set_title(
            f"{title}\nended with {worth(found)}"
            + ("; one is enough" if found.one_is_enough else ""),
            fontsize=9.5,
        )
        plot.ticks = set(range(0, round(ends[-1]) + 1, 2))
        plot.finish(bottom=None)
    save_panels(figure, axes, path)


def cpu(streams, path):
    """Draws CPU time for a GiB and the busy share for each row.

    Several clients share the server's CPU time, so only the busy share is shown for them.
    """
    rows = streams.rows
    names = [
        f"{row['network']}: {row['line']}, {row['channels']} ch, "
        f"{drawing.short_size(row['message_bytes'])}"
        + (f", {row['clients']} clients" if row["clients"] > 1 else "")
        for row in rows
    ]
    seconds = [
        mean(repeat["flows"][0]["cpu_s_per_gib"] for repeat in row["repeats"])
        if row["clients"] == 1
        else 0
        for row in rows
    ]
    busy = [1 - mean(repeat["cpu_idle_share"] for repeat in row["repeats"]) for row in rows]
    figure, axes = plt.subplots(figsize=(8.6, 0.9 + 0.17 * len(rows)))
    places = range(len(rows))
    axes.barh(
        places,
        seconds,
        color=[drawing.style_of(row["line"].split(",")[0], [row["line"]])[0] for row in rows],
        alpha=0.75,
    )
    for place, value, share in zip(places, seconds, busy):
        cost = f"{value:.1f}; " if value else ""
        axes.text(
            value,
            place,
            f"  {cost}busy {share:.0%}" + (" †" if is_limit(1 - share) else ""),
            va="center",
            fontsize=7,
        )
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.2 * max(seconds))
    axes.set_xlabel(
        "CPU seconds of both processes for a GiB of payload, and the busy share of processors "
        "(†: they were the limit)",
        fontsize=8,
    )
    axes.set_title("CPU use", fontsize=11)
    drawing.frame(axes)
    drawing.save(figure, path)


def mean(values):
    values = list(values)
    return sum(values) / len(values)
