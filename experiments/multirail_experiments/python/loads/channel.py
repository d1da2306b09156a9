"""Arrays from one process to another of the same host: `size` and `seconds`.

The sender has one array and sends it again and again. The receiver gets each one as an array and
looks at one element of each page.
"""

import json

from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script

CHANNEL, PIPELINE = "multirail.Channel", "multirail.Pipeline"
ZEROMQ, RAY = "ZeroMQ", "Ray"
LINES = [ZEROMQ, RAY, CHANNEL, PIPELINE]
LIMIT_S = 180


def unit(_load):
    return "MB/s"


def measured(lab, line, load):
    words = [line, size_bytes(load["size"]), load["seconds"]]
    done = lab.run("a", *script("channel"), *words, timeout=LIMIT_S)
    return json.loads(done.stdout.splitlines()[-1])["mb_s"]
