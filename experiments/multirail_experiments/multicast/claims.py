"""Claims that several folders of multicasts share."""

from multirail_experiments.claims import NO_VERDICT, Claim, Source, demanded
from multirail_experiments.multicast.results import WAN_SHARE


def share_claim(found, where, network, scenario, line, least):
    """A line's share of the bound."""
    bound = found.bound_mb_s(network, scenario) or 0
    return demanded(
        f"{where}: {network}, {scenario}",
        f"{line}: share of the bound",
        found.share(network, scenario, line),
        least=least,
        note=f"bound {bound:.2f} MB/s{found.dagger(network, scenario, line)}",
        runs=found.runs(network, scenario, line),
    )


def wan_claim(found, where, network, scenario, line, clusters=4):
    """Frame bytes that crossed between clusters, in files."""
    return demanded(
        f"{where}: {network}, {scenario}",
        f"{line}: frames between clusters, in files",
        found.median(network, scenario, line, field="wan_copies"),
        most=WAN_SHARE * (clusters - 1),
        runs=found.runs(network, scenario, line),
    )


def ratio_claim(
    found, where, network, scenario, line, against, least, size=None, source=Source.PEER
):
    """A line's rate over that of the best of other lines.

    Lines that sent files of different sizes are not compared: the begin and the end of a broadcast
    are a larger part of a small file.
    """
    names = [against] if isinstance(against, str) else against
    where = f"{where}: {network}, {scenario}"
    best = found.best(network, scenario, names, size)
    ours = found.row(network, scenario, line, size)
    if best is None or ours is None:
        text = f"{line}: rate over that of {' or '.join(names)}"
        return demanded(where, text, None, least=least, source=source)
    text = f"{line}: rate over that of {best}"
    theirs = found.row(network, scenario, best, size)
    ratio = found.ratio(network, scenario, line, best, size)
    if ours["file_bytes"] != theirs["file_bytes"]:
        note = (
            f"withdrawn: {line} sent {ours['file_bytes'] / 1e6:g} MB, "
            f"{best} {theirs['file_bytes'] / 1e6:g} MB"
        )
        return Claim(where, text, f">= {least:.2f}", f"{ratio:.2f}", NO_VERDICT, note, source)
    is_busy = ours["cpu_was_limit"] or theirs["cpu_was_limit"]
    return demanded(
        where,
        text,
        ratio,
        least=least,
        note="the CPU was the limit †" if is_busy else "",
        source=source,
        runs=min(len(ours["mb_s"]), len(theirs["mb_s"])),
    )
