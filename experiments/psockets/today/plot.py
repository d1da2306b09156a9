"""Windows as the kernel finds them, six networks: where one channel is enough, where several carry more, and what is found."""

import stream_drawing
from plan import K
from stream_drawing import Plot, panels, save_panels
from stream_results import Streams, auto_claims

UNIT = 64 * K


def figures(rows, out):
    streams = Streams(rows)
    figure, axes = panels(len(streams.networks))
    for network, one in zip(streams.networks, axes):
        plot = Plot(network, "channels, connections", axes=one, log=True)
        plot.rows(streams.select(network=network, line="adaptive"), "adaptive", "adaptive, a fixed number")
        plot.rows(streams.select(network=network, line="iperf3"), "iperf3")
        found = streams.found(network, UNIT)
        if found:
            plot.auto(found, above=False)
            if found.one_is_enough:
                one.text(0.98, 0.06, "one channel is enough", transform=one.transAxes, ha="right", fontsize=9)
        plot.link()
        plot.finish(top=112)
    save_panels(figure, axes, out / "channels.png")
    stream_drawing.over_time(streams, out / "over-time.png")
    stream_drawing.cpu(streams, out / "cpu.png")


def claims(rows):
    streams = Streams(rows)
    return [claim for found in streams.all_found() for claim in auto_claims("today", found, found.network, link=False)]
