"""Time with dying hosts against the undisturbed time."""

import multicast_drawing
from multicast_results import Broadcasts, demanded
from results import NOT_AVAILABLE, NOT_REACHED, REACHED, Claim

# Survivors may need so many times the undisturbed time.
MOST_TIMES = 1.25
DIES, RETURNS = ", one in ten dies", ", one in ten dies and returns"


def figures(rows, folder):
    found = Broadcasts(rows)
    for network in found.networks:
        multicast_drawing.scenario_bars(found, network, folder / f"{network}.png", f"{network}: one host in ten dies")
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        for scenario in found.scenarios:
            for line in ("adaptive",):
                for what in (DIES, RETURNS):
                    if line + what not in found.lines and not any(row["line"] == line + what for row in found.skipped):
                        continue
                    ratio = found.ratio(network, scenario, line, line + what)
                    row = found.row(network, scenario, line + what)
                    note = ", ".join(f"{host} at {at_s:.1f} s" for at_s, host in (row["died"][0] if row else []))
                    yield demanded(f"{network}, {scenario}", f"{line}{what}: time of the others over the undisturbed", ratio, most=MOST_TIMES, note=note)
                    if what == RETURNS:
                        yield returned(network, scenario, line, row)


def returned(network, scenario, line, row):
    text = f"{line}: who died and returned completes, with what it had"
    if row is None:
        return Claim(f"{network}, {scenario}", text, "", "-", NOT_AVAILABLE, "not measured")
    died, back = len(row["died"][0]), min(row["returned"])
    resumed_mb = sum(row.get("resumed_bytes", [0])) / len(row["returned"]) / 1e6
    return Claim(f"{network}, {scenario}", text, f"demanded: {died} of {died}", f"{back} of {died}", REACHED if back == died else NOT_REACHED,
                 f"{resumed_mb:.1f} MB of what they had were used again; the last was complete after {max(row['returned_s']):.1f} s")
