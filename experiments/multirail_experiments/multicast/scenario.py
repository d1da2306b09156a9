"""The MOB paper's four clusters and five scenarios (section 4.1, figure 3).

A scenario says what the links between clusters carry, and when. The paper prints the rates in a
picture that is not readable in the copy at hand, so these are our own. Events depend on plan and
seed alone, so that all methods and runs see the same.
"""

import hashlib
import random

CLUSTERS = ("a", "b", "c", "d")
ROOT = "a"
# MB/s, with MB = 10^6 bytes.
LINKS_MB_S = {
    ("a", "b"): 10,
    ("a", "c"): 4,
    ("a", "d"): 3,
    ("b", "c"): 6,
    ("b", "d"): 8,
    ("c", "d"): 5,
}
SLOW_MB_S = {("a", "d"): 0.8, ("b", "c"): 0.8}
SCENARIOS = ("fast", "slow", "fast-slow", "slow-fast", "mayhem")
TITLES = {
    "fast": "fast links",
    "slow": "slow links",
    "fast-slow": "fast → slow",
    "slow-fast": "slow → fast",
    "mayhem": "mayhem",
}

# The paper's runs of 600 MB take about 65 s. These times are for 120 MB at the rates above, which
# takes about 9 s; others are scaled.
REFERENCE_MB = 120
CHANGE_S, PERIOD_S = 4.0, 0.7
LEAST_SHARE = 0.1
# `mayhem` stays constant after this many changes, 700 s of the reference run.
MOST_CHANGES = 1000


def time_scale(size_mb, rate_scale):
    """How much longer than the reference run a run takes."""
    return size_mb / REFERENCE_MB / rate_scale


def kbit_s(rate_mb_s):
    return round(rate_mb_s * 8000)


def _rates(scale, slow):
    links = LINKS_MB_S | (SLOW_MB_S if slow else {})
    return {pair: kbit_s(rate * scale) for pair, rate in links.items()}


def events(name, *, seed=1, rate_scale=1.0, times=1.0, link_mbit_s=None):
    """Events [(at_s, {(one, other): kbit/s of each direction})] in order.

    The first event is at 0 and has all links. `times` stretches the rest (see `time_scale`). In the
    scenario `equal` all links have `link_mbit_s`. In `constant` the network alone says what links
    carry, and nothing changes.
    """
    if name == "constant":
        return [(0.0, {})]
    if name == "equal":
        return [(0.0, dict.fromkeys(LINKS_MB_S, round(link_mbit_s * 1000)))]
    if name in ("fast", "slow"):
        return [(0.0, _rates(rate_scale, name == "slow"))]
    if name in ("fast-slow", "slow-fast"):
        first, then = (
            _rates(rate_scale, name == "slow-fast"),
            _rates(rate_scale, name == "fast-slow"),
        )
        changed = {pair: rate for pair, rate in then.items() if first[pair] != rate}
        return [(0.0, first), (round(CHANGE_S * times, 3), changed)]
    if name != "mayhem":
        raise ValueError(f"no scenario is called {name}")
    nominal = _rates(rate_scale, slow=False)
    # Python promises stable results for `random()` only.
    draw = random.Random(int.from_bytes(hashlib.sha256(f"{seed} mayhem".encode()).digest()[:8]))
    found = [(0.0, nominal)]
    for step in range(1, MOST_CHANGES + 1):
        at_s = round(step * PERIOD_S * times, 6)
        found.append(
            (
                at_s,
                {
                    pair: round(rate * (LEAST_SHARE + (1 - LEAST_SHARE) * draw.random()))
                    for pair, rate in nominal.items()
                },
            )
        )
    return found


def only(found, clusters):
    """Events without links of clusters that a network lacks."""
    return [
        (at_s, {pair: rate for pair, rate in rates.items() if set(pair) <= set(clusters)})
        for at_s, rates in found
    ]


def link_words(rates):
    """Rates as `multirail lab` takes them: "a-b=80000kbit"."""
    return [f"{one}-{other}={rate}kbit" for (one, other), rate in rates.items()]


def play_file(found):
    """The input of `multirail lab play`: all events but the first; None if nothing changes."""
    lines = [f"{at_s} {' '.join(link_words(rates))}\n" for at_s, rates in found[1:]]
    return "".join(lines) or None


def read_play_file(text):
    """Reads events from such a file; the first event is not in it."""
    found = []
    for line in text.splitlines():
        at_s, *words = line.split()
        rates = {}
        for word in words:
            pair, rate = word.split("=")
            one, other = pair.split("-")
            rates[one, other] = int(rate.removesuffix("kbit"))
        found.append((float(at_s), rates))
    return found


def directed(found):
    """Events in bytes/s by (from, to), as the bound takes them."""
    return [
        (
            at_s,
            {
                way: rate * 125
                for (one, other), rate in rates.items()
                for way in ((one, other), (other, one))
            },
        )
        for at_s, rates in found
    ]
