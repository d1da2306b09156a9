"""Figures 7 and 8: latency of partial updates against the rate of complete ones, and the
planner.
"""

import statistics

from multirail_experiments.claims import NO_VERDICT, compare, demanded
from multirail_experiments.pipeline.results import Found, line, panels, save
from multirail_experiments.results import fewest_runs

SLOW, FAST = "tcp", "shm"
# The paper's ratios by computation, without and with repartitioning (section 5.2.2).
PAPER_LATENCY = {"no computation": (3.5, 10), "18 ns a byte": (4, 12)}
PAPER_RATE = {"no computation": (6, 8), "18 ns a byte": (4, 4)}
# The planner's chunk must have at least this share of the best one's performance.
PLANNER = 0.9
RATES = 24
# Shares of the rate that TCP can hold, and multiples of the least latency, that notes show.
PARTS_OF_RATE, JUDGED_RATE = (1, 0.99, 0.95), 0.95
TIMES_OF_LATENCY, JUDGED_LATENCY = (1, 1.5), 1.5


class Sweep:
    """A line's measurements by chunk size."""

    def __init__(self, found, job, name, planned=False):
        prefix = "planned_" if planned else ""
        wanted = {"job": job, "line": name, "measured": "updates"}
        self.rate = found.by("chunk_bytes", f"{prefix}updates_per_s", **wanted)
        self.latency = found.by("chunk_bytes", f"{prefix}latency_us", **wanted)

    def soonest(self, rate):
        """The chunk with the least latency of those that reach a rate."""
        return min(
            (chunk for chunk in self.rate if self.rate[chunk] >= rate),
            key=self.latency.get,
            default=None,
        )

    def fastest(self, latency_us):
        return max(
            (chunk for chunk in self.rate if self.latency[chunk] <= latency_us),
            key=self.rate.get,
            default=None,
        )


def rates_of(sweeps):
    top = max(max(sweep.rate.values()) for sweep in sweeps.values())
    return [top * (i + 1) / RATES for i in range(RATES)]


def latencies_of(sweeps):
    least = min(min(sweep.latency.values()) for sweep in sweeps.values())
    most = max(max(sweep.latency.values()) for sweep in sweeps.values())
    return [least * (most / least) ** (i / RATES) for i in range(RATES + 1)]


def figures(rows, out):
    found = Found(rows)
    figure, axes = panels(
        len(found.jobs), "Figure 7: latency of a partial update for a wanted rate of complete ones"
    )
    for axis, job in zip(axes, found.jobs):
        sweeps = {name: Sweep(found, job, name) for name in found.lines}
        slow = sweeps[SLOW]
        for name, sweep in sweeps.items():
            own = {
                rate: sweep.latency[chunk]
                for rate in rates_of(sweeps)
                if (chunk := sweep.soonest(rate))
            }
            line(axis, own, name if name == SLOW else f"{name}, its own chunk", name)
            if name != SLOW:
                same = {
                    rate: sweep.latency[chunk]
                    for rate in rates_of(sweeps)
                    if (chunk := slow.soonest(rate))
                }
                line(axis, same, f"{name}, {SLOW}'s chunk", name, ":")
        axis.set(
            title=job, xlabel="complete updates a second", ylabel="partial update, us", yscale="log"
        )
    save(figure, axes, out / "figure-07.png")

    figure, axes = panels(
        len(found.jobs), "Figure 8: rate of complete updates for a wanted latency of a partial one"
    )
    for axis, job in zip(axes, found.jobs):
        sweeps = {name: Sweep(found, job, name) for name in found.lines}
        for name, sweep in sweeps.items():
            own = {
                us: sweep.rate[chunk] for us in latencies_of(sweeps) if (chunk := sweep.fastest(us))
            }
            line(axis, own, name if name == SLOW else f"{name}, its own chunk", name)
            if name != SLOW:
                same = {
                    us: sweep.rate[chunk]
                    for us in latencies_of(sweeps)
                    if (chunk := sweeps[SLOW].fastest(us))
                }
                line(axis, same, f"{name}, {SLOW}'s chunk", name, ":")
        axis.set(
            title=job, xlabel="partial update, us", ylabel="complete updates a second", xscale="log"
        )
    save(figure, axes, out / "figure-08.png")

    figure, axes = panels(
        2 * len(found.jobs), "What the planner said (dashed), and what was measured"
    )
    for index, job in enumerate(found.jobs):
        for name in found.lines:
            for planned in (False, True):
                sweep = Sweep(found, job, name, planned)
                line(
                    axes[2 * index],
                    sweep.rate,
                    f"{name}{', planned' if planned else ''}",
                    name,
                    "--" if planned else "-",
                )
                line(
                    axes[2 * index + 1],
                    sweep.latency,
                    f"{name}{', planned' if planned else ''}",
                    name,
                    "--" if planned else "-",
                )
        axes[2 * index].set(
            title=job,
            xlabel="chunk, bytes",
            ylabel="complete updates a second",
            xscale="log",
            yscale="log",
        )
        axes[2 * index + 1].set(
            title=job,
            xlabel="chunk, bytes",
            ylabel="partial update, us",
            xscale="log",
            yscale="log",
        )
    save(figure, axes, out / "planner.png")


def claims(rows):
    found, result = Found(rows), []
    for job in found.jobs:
        slow = Sweep(found, job, SLOW)
        for name in found.lines:
            if name != SLOW:
                result += latency_claims(job, name, slow, Sweep(found, job, name))
                result += rate_claims(job, name, slow, Sweep(found, job, name))
        for name in found.lines:
            result.append(
                planner_claims(job, name, Sweep(found, job, name), Sweep(found, job, name, True))
            )
    runs = fewest_runs([row for row in found.rows if row["measured"] == "updates"])
    return [claim._replace(runs=runs) for claim in result]


def latency_claims(job, name, slow, fast):
    """Latencies at rates that TCP can hold.

    The verdict is that at 95 % of the most that TCP can hold. Its rate grows little with the
    largest chunks, so the last per cents of it cost TCP most of its latency.
    """
    most = max(slow.rate.values())
    for what, paper, is_same in (
        ("its chunk", PAPER_LATENCY[job][0], True),
        ("a chunk of its own", PAPER_LATENCY[job][1], False),
    ):
        sooner, notes = {}, []
        for part in PARTS_OF_RATE:
            theirs = slow.soonest(part * most)
            own = theirs if is_same else fast.soonest(part * most)
            if own is None:
                continue
            sooner[part] = slow.latency[theirs] / fast.latency[own]
            notes.append(
                f"at {part:.0%} {sooner[part]:.1f} ({SLOW}: {theirs} B, {slow.latency[theirs]:.0f} "
                f"us; {name}: {own} B, {fast.latency[own]:.0f} us)"
            )
        yield role(
            name,
            compare(
                "figure 7",
                f"{job}: partial updates at {JUDGED_RATE:.0%} of the rate that {SLOW} can hold, "
                f"{name} with {what}, times sooner",
                paper,
                sooner.get(JUDGED_RATE),
                digits=1,
                note=f"{most:.1f} complete updates a second are the most; " + ", ".join(notes),
            ),
        )


def role(name, claim):
    """Verdicts are those of the line in the role of the paper's SocketVIA."""
    return claim if name == FAST else claim._replace(verdict=NO_VERDICT)


def rate_claims(job, name, slow, fast):
    """Compares rates within latencies that both can keep; judged at 1.5 times the least."""
    least = max(min(slow.latency.values()), min(fast.latency.values()))
    for what, paper, is_same in (
        ("its chunk", PAPER_RATE[job][0], True),
        ("a chunk of its own", PAPER_RATE[job][1], False),
    ):
        times, notes = {}, []
        for factor in TIMES_OF_LATENCY:
            theirs = slow.fastest(factor * least)
            own = theirs if is_same else fast.fastest(factor * least)
            times[factor] = fast.rate[own] / slow.rate[theirs]
            notes.append(
                f"within {factor * least:.0f} us {times[factor]:.1f} "
                f"({SLOW} {theirs} B, {name} {own} B)"
            )
        yield role(
            name,
            compare(
                "figure 8",
                f"{job}: complete updates within {JUDGED_LATENCY:g} times the least latency of "
                f"{SLOW}, {name} with {what}, times as many",
                paper,
                times[JUDGED_LATENCY],
                digits=1,
                note=", ".join(notes),
            ),
        )


def planner_claims(job, name, measured, planned):
    """The chunk is chosen by the plan and judged by the measurement.

    A wanted rate for which the planner finds no chunk, although one was measured, counts as 0.
    """
    shares, missing = [], 0
    for share in (0.3, 0.5, 0.7, 0.9):
        wanted = share * max(measured.rate.values())
        best, chosen = measured.soonest(wanted), planned.soonest(wanted)
        if chosen is None:
            missing += 1
            shares.append(0.0)
            continue
        # A chunk that is sooner than the best one misses the rate by a little.
        ratio = measured.latency[best] / measured.latency[chosen]
        shares.append(min(ratio, measured.rate[chosen] / wanted, 1))
    errors = relative_errors(planned.rate, measured.rate)
    late = relative_errors(planned.latency, measured.latency)
    return demanded(
        "planner",
        f"{job}, {name}: the planner's chunk beside the best one, least of {len(shares)} rates",
        min(shares),
        least=PLANNER,
        note=f"no chunk found for {missing} of {len(shares)} rates; median error of the predicted "
        f"rate {statistics.median(errors):.0%}, of the latency {statistics.median(late):.0%}",
    )


def relative_errors(planned, measured):
    return [abs(planned[chunk] / measured[chunk] - 1) for chunk in measured]
