"""Arrays from one process to another of the same host: `size` and `seconds`.

The sender has one array, writes to one element of each page and sends it, again and again; with
`multirail.Channel.empty` it makes each array in the channel's memory. The receiver gets each one as
an array and reads one element of each page.
"""

import json

from multirail_experiments.plan import size_bytes
from multirail_experiments.python.measure import script

CHANNEL, IN_PLACE = "multirail.Channel", "multirail.Channel.empty"
PIPELINE = "multirail.Pipeline"
ZEROMQ, RAY = "ZeroMQ", "Ray"
LINES = [ZEROMQ, RAY, CHANNEL, IN_PLACE, PIPELINE]
LIMIT_S = 180


def unit(_load):
    return "MB/s"


def measured(lab, line, load):
    words = [line, size_bytes(load["size"]), load["seconds"]]
    done = lab.run("a", *script("channel"), *words, timeout=LIMIT_S)
    return json.loads(done.stdout.splitlines()[-1])["mb_s"]
