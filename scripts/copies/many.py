"""Many empty files, beside rsync from its daemon: the first copy, and one of the unchanged tree."""

import os
import pathlib
import re
import shutil
import statistics
import time

from lab import Lab
from measure import M, SERVER

RSYNC_PORT = 7822
REPEATS = 3
IN_A_FOLDER = 1000
MOST_BYTES = 256 * M


def measure(args):
    """Prints what was measured, and returns what is not as it should be."""
    with Lab(args.multirail, ("a", "b"), "--hosts", "a,b", "--rails", "-,-") as lab:
        tree = lab.work / "tree"
        for number in range(args.files):
            folder = tree / str(number // IN_A_FOLDER)
            if number % IN_A_FOLDER == 0:
                folder.mkdir(parents=True)
            os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))
        settings = lab.work / "rsyncd.conf"
        settings.write_text("use chroot = no\nreverse lookup = no\nlog file = /dev/null\n"
                            f"lock file = {lab.work}/rsyncd.lock\nuid = root\ngid = root\n"
                            f"[lab]\npath = {lab.work}\nread only = yes\n")
        daemon = ["rsync", "--daemon", "--no-detach", "--config", settings, "--port", RSYNC_PORT]
        serve = [lab.multirail, "serve", "--root", lab.work, "--token-file", lab.token_file]
        lines = {
            "rsync -a": ["rsync", "-a", f"rsync://{SERVER}:{RSYNC_PORT}/lab/tree"],
            "multirail cp -r": [lab.multirail, "cp", "-r", "--token-file", lab.token_file, f"mr://{SERVER}/tree"],
        }
        took_s = {(line, run): [] for line in lines for run in ("first", "again")}
        peaks = []
        with lab.server("b", 7717, *serve) as server, lab.server("b", RSYNC_PORT, *daemon):
            for repeat in range(REPEATS):
                for line in list(lines) if repeat % 2 else reversed(lines):
                    target = lab.work / "target"
                    target.mkdir()
                    for run in ("first", "again"):
                        seconds, peak = timed(lab, [*lines[line], f"{target}/"])
                        took_s[line, run].append(seconds)
                        if line != "rsync -a":
                            peaks.append(peak)
                    found = sum(len(names) for _, _, names in os.walk(target))
                    shutil.rmtree(target)
                    if found != args.files:
                        yield f"{line}: {found} files have arrived"
            peaks.append(peak_bytes(server.pid))
    for (line, run), several in took_s.items():
        print(f"files: {args.files:,} empty files, {run}, {line}: {statistics.median(several):.2f} s "
              f"({min(several):.2f} to {max(several):.2f})", flush=True)
    print(f"files: multirail's largest resident memory: {max(peaks) / M:.0f} MiB", flush=True)
    for run in ("first", "again"):
        ours, theirs = (statistics.median(took_s[line, run]) for line in ("multirail cp -r", "rsync -a"))
        if ours > theirs:
            yield f"{run}: {ours:.2f} s, and rsync {theirs:.2f} s"
    if max(peaks) > MOST_BYTES:
        yield f"{max(peaks)} bytes resident"


def timed(lab, command):
    """Seconds and the peak of resident bytes of a command on host a."""
    began = time.monotonic()
    with lab.started("a", *command) as running:
        _, status, usage = os.wait4(running.pid, 0)
        seconds, running.returncode = time.monotonic() - began, os.waitstatus_to_exitcode(status)
        if running.returncode:
            raise SystemExit(f"exit code {running.returncode}: {command}")
    return seconds, usage.ru_maxrss * 1024


def peak_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024
