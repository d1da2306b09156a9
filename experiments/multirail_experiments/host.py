"""This machine: what it is, the CPU time that is used on it, and whose turn it is to use it."""

import contextlib
import datetime
import fcntl
import os
import pathlib
import platform
import subprocess
import time

from multirail_experiments.paths import HOME

# A broadcast holds a lock on this file while it is measured.
TURN_LOCK = pathlib.Path("/run/lock/multirail-experiments")
# The kernel wakes the next holder within this time after a lock was released.
HANDOVER_S = 0.2

# Below this share of idle CPU time the CPU was the limit, not the network.
BUSY_IDLE_SHARE = 0.10


def is_limit(idle_share):
    return idle_share < BUSY_IDLE_SHARE


@contextlib.contextmanager
def turn():
    """Waits until no other measurement and no `flock` holds this machine, and holds it."""
    with open(TURN_LOCK, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    time.sleep(HANDOVER_S)


class Cpu:
    """CPU time of this machine between two calls, from /proc/stat."""

    def __init__(self):
        self.reset()

    def reset(self):
        self._before = self._times()

    @staticmethod
    def _times():
        with open("/proc/stat") as stat:
            fields = [int(field) for field in stat.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    def take(self):
        """Idle share over all processors and CPU seconds used, since the last take or reset."""
        total, idle = (now - then for now, then in zip(self._times(), self._before))
        self.reset()
        ticks = os.sysconf("SC_CLK_TCK")
        return {
            "cpu_idle_share": round(idle / max(total, 1), 3),
            "cpu_s": round((total - idle) / ticks, 2),
        }


def process_cpu_s(pid):
    """CPU seconds that a process has used so far, without its children."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def describe(multirail):
    """The first row of every file of results."""

    def read(path):
        return pathlib.Path(path).read_text().strip()

    models = [
        line.split(":")[1].strip()
        for line in read("/proc/cpuinfo").splitlines()
        if "model name" in line
    ]
    return {
        "kind": "host",
        "date": datetime.date.today().isoformat(),
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "version": subprocess.check_output([multirail, "--version"], text=True).split()[-1],
        "commit": commit(),
    }


def commit():
    """The commit that is checked out; "-dirty" if code or plans differ from it.

    Results and pages that earlier runs wrote do not count as a difference.
    """
    name = subprocess.run(
        ["git", "describe", "--always"], capture_output=True, text=True, cwd=HOME
    ).stdout.strip()
    written = [f":(exclude){path}" for path in ("RESULTS.md", "*/README.md", "*/runs/*")]
    changed = subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", ":/", *written], capture_output=True, cwd=HOME
    )
    return (name or "unknown") + ("-dirty" if changed.returncode == 1 else "")
