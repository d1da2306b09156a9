"""Completion time with dying hosts against the undisturbed time."""

from multirail_experiments.claims import Claim, Source, demanded, judged, not_measured
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.results import Broadcasts

# The surviving hosts may take this multiple of the undisturbed time.
MOST_TIMES = 1.25
LINE = "adaptive"
DIES, RETURNS = ", one in ten dies", ", one in ten dies and returns"


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        multicast_drawing.scenario_bars(
            found, network, folder / f"{network}.png", f"{network}: one host in ten dies"
        )
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        for scenario in found.scenarios:
            for what in (DIES, RETURNS):
                yield from death_claims(found, network, scenario, LINE + what)


def death_claims(found, network, scenario, line):
    if line not in found.lines and all(row["line"] != line for row in found.skipped):
        return
    row = found.row(network, scenario, line)
    died = row["died"][0] if row else []
    yield demanded(
        f"{network}, {scenario}",
        f"{line}: time of the others over the undisturbed",
        found.ratio(network, scenario, LINE, line),
        most=MOST_TIMES,
        note=", ".join(f"{host} at {at_s:.1f} s" for at_s, host in died),
    )
    if line.endswith(RETURNS):
        yield returned(f"{network}, {scenario}", row)


def returned(where, row):
    text = f"{LINE}: hosts that died and returned complete, with what they had"
    if row is None:
        return not_measured(where, text, source=Source.LIMIT)
    died, back = len(row["died"][0]), min(row["returned"])
    resumed_mb = sum(row.get("resumed_bytes", [0])) / len(row["returned"]) / 1e6
    note = (
        f"{resumed_mb:.1f} MB of what they had were used again; "
        f"the last was complete after {max(row['returned_s']):.1f} s"
    )
    return Claim(
        where,
        text,
        f"{died} of {died}",
        f"{back} of {died}",
        judged(back == died),
        note,
        Source.LIMIT,
    )
