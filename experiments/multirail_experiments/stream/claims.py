"""Claims on the number of channels that the default finds by itself."""

from multirail_experiments.claims import Claim, Source, judged
from multirail_experiments.stream.results import FOUND_S, LINK_MBIT_S

# Least shares of the best fixed number's rate, and of the link.
SHARE_OF_BEST, SHARE_OF_LINK = 0.95, 0.90


def auto_claims(where, found, what, link=True):
    """Limits for the found number at one point; `link`: the rate must also fill the link."""
    ended = f"ended with {found.ended_with()}"
    if found.share_of_best is not None:
        is_peer = found.best_line == "iperf3"
        note = f"best fixed number: {found.best_channels} channels, {found.best_line}; {ended}"
        if found.cpu_was_limit:
            note += "; the CPU was the limit"
        yield limit(
            where,
            f"{what}: the default's share of the best fixed number of any line",
            f">= {SHARE_OF_BEST:.2f}",
            f"{found.share_of_best:.2f}",
            round(found.share_of_best, 2) >= SHARE_OF_BEST,
            note,
            Source.PEER if is_peer else Source.LIMIT,
        )
    yield limit(
        where,
        f"{what}: the default changes its number for the last time",
        f"<= {FOUND_S:.2f} s",
        f"{found.found_s:.2f} s",
        found.found_s <= FOUND_S,
        ended,
    )
    if link:
        yield limit(
            where,
            f"{what}: the default's share of the link",
            f">= {SHARE_OF_LINK:.2f}",
            f"{found.share_of_link:.2f}",
            round(found.share_of_link, 2) >= SHARE_OF_LINK,
            f"{found.rate_mbit_s:.1f} of {LINK_MBIT_S} Mbit/s",
        )
    if found.one_is_enough:
        yield limit(
            where,
            f"{what}: one channel is enough, and the default ends with one",
            "1",
            found.ended_with(),
            set(found.channels) == {1},
        )


def limit(where, text, expected, measured, is_reached, note="", source=Source.LIMIT):
    return Claim(where, text, expected, measured, judged(is_reached), note, source)
