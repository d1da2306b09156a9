"""Python beside the library in Rust, PyTorch's Gloo, ZeroMQ and Ray."""

from multirail_experiments.claims import Source, demanded
from multirail_experiments.programs.drawing import shown, tables
from multirail_experiments.programs.results import by_network, ratio
from multirail_experiments.python.loads import arrays, channel, collectives, ray_pipeline

# Sizes from which arrays must have this share of the library's rate.
ARRAYS_SHARE, LARGE_ARRAYS = 0.97, ("64 KiB", "1 MiB", "64 MiB")
CALL_US = 10
# The least rate over that of other libraries between two processes of a host.
CHANNEL = {channel.ZEROMQ: 5, channel.RAY: 20}
# How many times as fast as Gloo, by network, for large tensors; smaller ones must not be slower.
LARGE_TENSORS = ("1 MiB", "64 MiB")
COLLECTIVES = {"100+100, four hosts": 1.8, "100+25, four hosts": 1.15}
RAY_PIPELINE = 5


def figures(rows, folder):
    (folder / "tables.md").write_text("\n".join(tables(by_network(rows), TITLE)) + "\n")


TITLE = "Python, beside Rust and other libraries"


def claims(rows):
    for network, measured in by_network(rows).items():
        for load in dict.fromkeys(load for load, _ in measured):
            of = {line: one for (of_load, line), one in measured.items() if of_load == load}
            yield from of_load(network, load, of)


def of_load(network, load, of):
    lines = set(of)
    if lines & {arrays.RUST, arrays.PYTHON}:
        yield from of_arrays(network, load, of.get(arrays.PYTHON), of.get(arrays.RUST))
    elif lines & {collectives.GLOO}:
        is_large = load.endswith(LARGE_TENSORS)
        least = COLLECTIVES[network] if is_large else 1.0
        ours, other = of.get(collectives.MULTIRAIL), of.get(collectives.GLOO)
        # The values are times.
        yield compared(network, load, "Gloo's time over ours", other, ours, least=least)
    elif "pipeline" in load:
        ours, other = of.get(ray_pipeline.MULTIRAIL), of.get(ray_pipeline.RAY)
        yield compared(network, load, "the rate over Ray's", ours, other, least=RAY_PIPELINE)
    else:
        for line, least in CHANNEL.items():
            for ours in (channel.CHANNEL, channel.IN_PLACE, channel.PIPELINE):
                text = f"the rate of {ours} over that of {line}"
                yield compared(network, load, text, of.get(ours), of.get(line), least=least)


def of_arrays(network, load, ours, rust):
    if "ping-pong" in load:
        more = ours and rust and ours.middle - rust.middle
        # Half a round trip has one call that sends and one that receives.
        note = f"{shown(ours.middle)} and {shown(rust.middle)} µs" if more is not None else ""
        text = f"{load}: half a round trip more than in Rust, which is two calls"
        yield demanded(network, text, more, most=2 * CALL_US, digits=1, unit="µs", note=note)
    elif load.endswith(LARGE_ARRAYS):
        yield compared(network, load, "the rate over that in Rust", ours, rust, least=ARRAYS_SHARE)


def compared(network, load, text, ours, other, **limit):
    share = ratio(ours, other)
    note = f"{shown(ours.middle)} and {shown(other.middle)} {ours.unit}" if share else ""
    text = f"{load}: {text}"
    return demanded(network, text, share, note=note, source=Source.LIMIT, **limit)
