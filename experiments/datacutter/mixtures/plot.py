"""Figure 9: mean response time over the share of complete updates."""

from multirail_experiments.claims import Claim, judged
from multirail_experiments.pipeline.results import Found, line, panels, save

SLOW, FAST = "tcp", "shm"
# Single runs that are closer than this give no verdict.
MARGIN = 1.2


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
                line(
                    axis,
                    found.by("complete_share", "response_ms", job=job, line=name),
                    f"{name}, {job.split(', ')[1]}",
                    name,
                    dashes,
                )
        axis.set(title=group, xlabel="share of complete updates", ylabel="ms", yscale="log")
    save(figure, axes, out / "figure-09.png")


def claims(rows):
    """The paper: with TCP, the response time rises faster with the share of complete updates.

    A small difference between two single runs gives no verdict, since no spread is known.
    """
    found = Found(rows)
    for job in found.jobs:
        slow, fast = (
            found.by("complete_share", "response_ms", job=job, line=name) for name in (SLOW, FAST)
        )
        if slow and fast:
            yield claim(job, slow, fast)


def claim(job, slow, fast):
    least, most = min(slow), max(slow)
    if "1 partition" in job.split(", "):
        text = f"{job}: response time, {SLOW} over {FAST}"
        ratio, note = slow[most] / fast[most], "every query gets all data"
    else:
        text = (
            f"{job}: response time's rise from no complete updates to nothing else, "
            f"{SLOW} over {FAST}"
        )
        ratio = (slow[most] - slow[least]) / max(fast[most] - fast[least], 1e-9)
        within = max((share for share in fast if fast[share] <= slow[most]), default=None)
        note = (
            f"ms at {least:.0%} and {most:.0%}: {SLOW} {slow[least]:.2f}, {slow[most]:.1f}; "
            f"{FAST} {fast[least]:.2f}, {fast[most]:.1f}"
        )
        if within is not None:
            note += f"; {FAST} keeps {SLOW}'s time at {most:.0%} up to a share of {within:.0%}"
    found = Claim("figure 9", text, "> 1", f"{ratio:.2f}", judged(ratio > 1), note)
    if 1 / MARGIN < ratio < MARGIN:
        return found.withdrawn(f"one run each, and less than {MARGIN - 1:.0%} apart")
    return found
