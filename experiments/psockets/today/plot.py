"""Windows as the kernel tunes them, on six networks: one channel, several, or the number found."""

from multirail_experiments.claims import Claim, Source, judged
from multirail_experiments.plan import K
from multirail_experiments.stream import drawing as stream_drawing
from multirail_experiments.stream.claims import auto_claims
from multirail_experiments.stream.drawing import Plot, panels, save_panels
from multirail_experiments.stream.measure import AUTO
from multirail_experiments.stream.results import Streams, resent_share

UNIT = 64 * K


def figures(rows, out):
    streams = Streams(rows)
    figure, axes = panels(len(streams.networks))
    for network, one in zip(streams.networks, axes):
        plot = Plot(network, "channels, connections", axes=one, log=True)
        plot.rows(
            streams.select(network=network, line="adaptive"), "adaptive", "adaptive, a fixed number"
        )
        plot.rows(streams.select(network=network, line="iperf3"), "iperf3")
        found = streams.found(network, UNIT)
        if found:
            plot.auto(found, above=False)
            if found.one_is_enough:
                one.text(
                    0.98,
                    0.06,
                    "one channel is enough",
                    transform=one.transAxes,
                    ha="right",
                    fontsize=9,
                )
        plot.link()
        plot.finish(top=112)
    save_panels(figure, axes, out / "channels.png")
    stream_drawing.over_time(streams, out / "over-time.png")
    stream_drawing.cpu(streams, out / "cpu.png")


def claims(rows):
    streams = Streams(rows)
    for found in streams.all_found():
        yield from auto_claims("today", found, found.network, link=False)
        claim = resent_claim(streams, found.network)
        if claim is not None:
            yield claim


def resent_claim(streams, network):
    """The default must not send more segments again than the worst number of iperf3."""
    ours = streams.one(network=network, channels=AUTO)
    theirs = streams.select(network=network, line="iperf3")
    if ours is None or not theirs:
        return None
    shares = {row["channels"]: 100 * resent_share(row) for row in theirs}
    most, resent = max(shares.values()), 100 * resent_share(ours)
    return Claim(
        "today",
        f"{network}: segments that the default sends again, beside iperf3",
        f"<= {most:.1f} %",
        f"{resent:.1f} %",
        judged(round(resent, 1) <= round(most, 1)),
        "; ".join(f"iperf3 -P {number}: {share:.1f} %" for number, share in shares.items()),
        Source.PEER,
    )
