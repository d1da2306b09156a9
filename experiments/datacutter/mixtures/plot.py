"""Figure 9: mean response time over the share of complete updates."""

from pipeline_results import Found, line, panels, save
from results import NOT_REACHED, REACHED, Claim

SLOW, FAST = "tcp", "shm"


def groups(found):
    """Jobs by computation."""
    result = {}
    for job in found.jobs:
        result.setdefault(job.split(", ")[0], []).append(job)
    return result


def figures(rows, out):
    found = Found(rows)
    every = groups(found)
    figure, axes = panels(len(every), "Figure 9: mean response time of zooms and complete updates")
    for axis, (group, jobs) in zip(axes, every.items()):
        for job, dashes in zip(jobs, (":", "-.", "--", "-")):
            for name in (SLOW, FAST):
                line(axis, found.by("complete_share", "response_ms", job=job, line=name), f"{name}, {job.split(', ')[1]}", name, dashes)
        axis.set(title=group, xlabel="share of complete updates", ylabel="ms", yscale="log")
    save(figure, axes, out / "figure-09.png")


def claims(rows):
    """The paper: TCP's response time rises faster with the share, so the fast substrate bears larger shares within the same time."""
    found = Found(rows)
    for job in found.jobs:
        slow, fast = (found.by("complete_share", "response_ms", job=job, line=name) for name in (SLOW, FAST))
        if not slow or not fast:
            continue
        least, most = min(slow), max(slow)
        rises = [points[most] - points[least] for points in (slow, fast)]
        text = f"{job}: response time's rise from no complete updates to nothing else, {SLOW} over {FAST}"
        if "1 partition" in job.split(", "):
            yield Claim("figure 9", f"{job}: response time, {SLOW} over {FAST}", "> 1", f"{slow[most] / fast[most]:.2f}",
                        REACHED if slow[most] > fast[most] else NOT_REACHED, "every query gets all data")
            continue
        bears = max((share for share in fast if fast[share] <= slow[most]), default=None)
        yield Claim("figure 9", text, "> 1", f"{rises[0] / max(rises[1], 1e-9):.2f}", REACHED if rises[0] > rises[1] else NOT_REACHED,
                    f"ms at {least:.0%} and {most:.0%}: {SLOW} {slow[least]:.2f}, {slow[most]:.1f}; {FAST} {fast[least]:.2f}, {fast[most]:.1f}; "
                    f"{FAST} bears {bears:.0%} within {SLOW}'s time at {most:.0%}")
