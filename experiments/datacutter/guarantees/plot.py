"""Figures 7 and 8: latency of partial updates for a wanted rate of complete ones, and the other way round; and what the planner said."""

from pipeline_results import Found, line, panels, save
from results import NOT_AVAILABLE, NOT_REACHED, REACHED, Claim, compare

SLOW, FAST = "tcp", "shm"
# By computation: the paper's ratios without and with repartitioning (section 5.2.2).
PAPER_LATENCY = {"no computation": (3.5, 10), "18 ns a byte": (4, 12)}
PAPER_RATE = {"no computation": (6, 8), "18 ns a byte": (4, 4)}
# The planner's chunk must be so near to the best one.
PLANNER = 0.9
RATES = 24


class Sweep:
    """A line's measurements by chunk size."""

    def __init__(self, found, job, name, planned=False):
        prefix = "planned_" if planned else ""
        wanted = {"job": job, "line": name, "measured": "updates"}
        self.rate = found.by("chunk_bytes", f"{prefix}updates_per_s", **wanted)
        self.latency = found.by("chunk_bytes", f"{prefix}latency_us", **wanted)

    def soonest(self, rate):
        """The chunk with the least latency of those that reach the rate."""
        return min((chunk for chunk in self.rate if self.rate[chunk] >= rate), key=self.latency.get, default=None)

    def fastest(self, latency_us):
        return max((chunk for chunk in self.rate if self.latency[chunk] <= latency_us), key=self.rate.get, default=None)


def rates_of(sweeps):
    top = max(max(sweep.rate.values()) for sweep in sweeps.values())
    return [top * (i + 1) / RATES for i in range(RATES)]


def latencies_of(sweeps):
    least = min(min(sweep.latency.values()) for sweep in sweeps.values())
    most = max(max(sweep.latency.values()) for sweep in sweeps.values())
    return [least * (most / least) ** (i / RATES) for i in range(RATES + 1)]


def figures(rows, out):
    found = Found(rows)
    figure, axes = panels(len(found.jobs), "Figure 7: latency of a partial update for a wanted rate of complete ones")
    for axis, job in zip(axes, found.jobs):
        sweeps = {name: Sweep(found, job, name) for name in found.lines}
        slow = sweeps[SLOW]
        for name, sweep in sweeps.items():
            own = {rate: sweep.latency[chunk] for rate in rates_of(sweeps) if (chunk := sweep.soonest(rate))}
            line(axis, own, name if name == SLOW else f"{name}, its own chunk", name)
            if name != SLOW:
                same = {rate: sweep.latency[chunk] for rate in rates_of(sweeps) if (chunk := slow.soonest(rate))}
                line(axis, same, f"{name}, {SLOW}'s chunk", name, ":")
        axis.set(title=job, xlabel="complete updates a second", ylabel="partial update, us", yscale="log")
    save(figure, axes, out / "figure-07.png")

    figure, axes = panels(len(found.jobs), "Figure 8: rate of complete updates for a wanted latency of a partial one")
    for axis, job in zip(axes, found.jobs):
        sweeps = {name: Sweep(found, job, name) for name in found.lines}
        for name, sweep in sweeps.items():
            own = {us: sweep.rate[chunk] for us in latencies_of(sweeps) if (chunk := sweep.fastest(us))}
            line(axis, own, name if name == SLOW else f"{name}, its own chunk", name)
            if name != SLOW:
                same = {us: sweep.rate[chunk] for us in latencies_of(sweeps) if (chunk := sweeps[SLOW].fastest(us))}
                line(axis, same, f"{name}, {SLOW}'s chunk", name, ":")
        axis.set(title=job, xlabel="partial update, us", ylabel="complete updates a second", xscale="log")
    save(figure, axes, out / "figure-08.png")

    figure, axes = panels(2 * len(found.jobs), "What the planner said (dashed), and what was measured")
    for index, job in enumerate(found.jobs):
        for name in found.lines:
            for planned in (False, True):
                sweep = Sweep(found, job, name, planned)
                line(axes[2 * index], sweep.rate, f"{name}{', planned' if planned else ''}", name, "--" if planned else "-")
                line(axes[2 * index + 1], sweep.latency, f"{name}{', planned' if planned else ''}", name, "--" if planned else "-")
        axes[2 * index].set(title=job, xlabel="chunk, bytes", ylabel="complete updates a second", xscale="log", yscale="log")
        axes[2 * index + 1].set(title=job, xlabel="chunk, bytes", ylabel="partial update, us", xscale="log", yscale="log")
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
            result += planner_claims(job, name, Sweep(found, job, name), Sweep(found, job, name, True))
    return result


def latency_claims(job, name, slow, fast):
    most = max(slow.rate.values())
    theirs = slow.soonest(most)
    same, own = slow.latency[theirs] / fast.latency[theirs], fast.soonest(most)
    for what, paper, ours, chunk in (("its chunk", PAPER_LATENCY[job][0], same, theirs),
                                     ("a chunk of its own", PAPER_LATENCY[job][1], own and slow.latency[theirs] / fast.latency[own], own)):
        note = f"{most:.1f} complete updates a second; {SLOW}: {theirs} B, {slow.latency[theirs]:.0f} us"
        if chunk:
            note += f"; {name}: {chunk} B, {fast.latency[chunk]:.0f} us"
        result = compare("figure 7", f"{job}: partial updates at the most that {SLOW} can hold, {name} with {what}, times sooner", paper, ours,
                         digits=1, note=note)
        yield result if name == FAST else result._replace(verdict=NOT_AVAILABLE)


def rate_claims(job, name, slow, fast):
    """At the least latency that both can keep."""
    least = max(min(slow.latency.values()), min(fast.latency.values()))
    theirs, own = slow.fastest(least), fast.fastest(least)
    for what, paper, chunk in (("its chunk", PAPER_RATE[job][0], theirs), ("a chunk of its own", PAPER_RATE[job][1], own)):
        result = compare("figure 8", f"{job}: complete updates within the least latency of {SLOW}, {name} with {what}, times as many", paper,
                         fast.rate[chunk] / slow.rate[theirs], digits=1, note=f"{least:.0f} us; {SLOW} {theirs} B, {name} {chunk} B")
        yield result if name == FAST else result._replace(verdict=NOT_AVAILABLE)


def planner_claims(job, name, measured, planned):
    """Chosen by the plan, judged by the measurement."""
    shares = []
    for share in (0.3, 0.5, 0.7, 0.9):
        wanted = share * max(measured.rate.values())
        best, chosen = measured.soonest(wanted), planned.soonest(wanted)
        if best and chosen:
            # Sooner than the best is what misses the rate a little.
            shares.append(min(measured.latency[best] / measured.latency[chosen], measured.rate[chosen] / wanted, 1))
    errors = sorted(abs(planned.rate[chunk] / measured.rate[chunk] - 1) for chunk in measured.rate)
    late = sorted(abs(planned.latency[chunk] / measured.latency[chunk] - 1) for chunk in measured.rate)
    text = f"{job}, {name}: the planner's chunk beside the best one, least of {len(shares)} wanted rates"
    note = f"median error of the predicted rate {errors[len(errors) // 2]:.0%}, of the latency {late[len(late) // 2]:.0%}"
    if not shares:
        return [Claim("planner", text, f"demanded: >= {PLANNER}", "-", NOT_AVAILABLE, note)]
    return [Claim("planner", text, f"demanded: >= {PLANNER}", f"{min(shares):.2f}", REACHED if min(shares) >= PLANNER else NOT_REACHED, note)]
