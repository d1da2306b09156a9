"""Arrays of NumPy between two hosts, and the same messages in Rust: `pattern`, `size`, `seconds`.

A stream is the rate of messages one way; ping-pong is half the time of a message there and back.
"""

import subprocess

from multirail_experiments.paths import ROOT
from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script

PYTHON, RUST = "Python", "Rust"
LINES = [RUST, PYTHON]
PORT = 7717
# What a command may take.
LIMIT_S = 120
# The number of messages that find out how long one takes, and the bytes of all of them.
FEW, FEW_BYTES = 20, 8 << 20


def unit(load):
    return "Mbit/s" if load["pattern"] == "stream" else "µs"


def measured(lab, line, load):
    rust = [ROOT / "target/release/examples/arrays"]
    command = rust if line == RUST else script("arrays")
    size = size_bytes(load["size"])
    with lab.start("b", *command, "serve", f"0.0.0.0:{PORT}", ready="ready"):

        def took_s(count):
            host = f"{lab.address('b', 0)}:{PORT}"
            words = [load["pattern"], host, size, count]
            return float(
                lab.run("a", *command, *words, timeout=LIMIT_S, stderr=subprocess.DEVNULL).stdout
            )

        few = max(1, min(FEW, FEW_BYTES // size))
        count = max(few, int(load["seconds"] * few / took_s(few)))
        a_message_s = took_s(count) / count
    return size * 8e-6 / a_message_s if load["pattern"] == "stream" else a_message_s / 2 * 1e6
