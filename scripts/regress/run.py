"""Measures a dozen ratios, each against a peer or an ideal in the same run, and compares them with
floors. Fails with the number and the floor where one is missed. Needs root, iperf3 and rsync."""

import argparse
import fnmatch
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import floors
import measure
from lab import Failed

# Nothing is measured once more after this time, so that a run ends within four minutes.
AGAIN_UNTIL_S = 195
# What keeps a group of ratios from being measured.
FAILURES = (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError)


def main():
    parser = argparse.ArgumentParser(prog="scripts/regress", description=__doc__)
    parser.add_argument("multirail", type=pathlib.Path, nargs="?", help="the command to measure")
    parser.add_argument("--only", metavar="GLOB", default="*", help="only these groups of ratios")
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE",
                        help="append this run's ratios to a file, as a line of JSON")
    parser.add_argument("--set-floors", type=pathlib.Path, metavar="FILE",
                        help=f"measure nothing; make {floors.PATH.name} of such a file")
    args = parser.parse_args()
    if args.set_floors:
        set_floors(args.set_floors)
        return
    if args.multirail is None:
        parser.error("which command to measure?")
    if os.geteuid() != 0:
        raise SystemExit("this makes network namespaces, which needs root: sudo make regress")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    groups = {name: group for name, group in measure.GROUPS.items()
              if fnmatch.fnmatch(name, args.only)}
    if not groups:
        raise SystemExit(f"no group matches {args.only}; there are {', '.join(measure.GROUPS)}")
    run(groups, str(args.multirail.resolve()), floors.read(), args.record)


def run(groups, multirail, known, record=None):
    """Measures, prints the table, and exits with 1 if a floor is missed."""
    started = time.monotonic()
    values, skipped = {}, {}
    for name, group in groups.items():
        values |= measured(name, group, multirail, skipped)
    if record:
        with open(record, "a") as file:
            print(json.dumps(values), file=file)
    known = {ratio: floor for ratio, floor in known.items()
             if (name := group_of(ratio, groups)) and name not in skipped}
    # A moment in which the machine has something else to do must not fail the run, so a group
    # with a ratio below its floor is measured once more, and the better value counts.
    missed = [verdict.name for verdict in floors.verdicts(known, values)
              if verdict.is_missed and verdict.floor]
    for name in dict.fromkeys(group_of(ratio, groups) for ratio in missed):
        if time.monotonic() - started < AGAIN_UNTIL_S:
            tell(f"{name}: below a floor, so it is measured once more")
            again = measured(name, groups[name], multirail, skipped)
            values = floors.better(values, again)
    report(floors.verdicts(known, values), skipped, time.monotonic() - started)


def measured(name, group, multirail, skipped):
    """The median of each ratio of a group; none, with the reason told, where that failed."""
    started = time.monotonic()
    try:
        samples = group(multirail)
    except measure.Skipped as reason:
        skipped[name] = str(reason)
        return {}
    except FAILURES as error:
        tell(f"{name}: {type(error).__name__}: {error}")
        return {}
    tell(f"{name}: {time.monotonic() - started:.0f} s")
    return {f"{name}/{ratio}": round(statistics.median(several), 4)
            for ratio, several in samples.items()}


def report(verdicts, skipped, took_s):
    heading = ["ratio", "measured", "floor", "usual", "verdict"]
    print("\n".join(floors.table([heading, *(verdict.row() for verdict in verdicts)])))
    for name, reason in skipped.items():
        print(f"skipped: {name} ({reason})")
    missed = [verdict for verdict in verdicts if verdict.is_missed]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} ratios reach their floor; "
          f"measured in {took_s:.0f} s", flush=True)
    if missed:
        raise SystemExit("\n".join(f"regress: {verdict}" for verdict in missed))


def group_of(ratio, groups):
    """The name of the group that a ratio belongs to, which begins the ratio's name."""
    return next((name for name in groups if ratio.startswith(f"{name}/")), None)


def set_floors(path):
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    if len(runs) < floors.RUNS:
        raise SystemExit(f"floors need {floors.RUNS} runs; {path} has {len(runs)}")
    names = dict.fromkeys(name for run in runs for name in run)
    incomplete = [name for name in names if any(name not in run for run in runs)]
    if incomplete:
        raise SystemExit(f"not measured in every run of {path}: {', '.join(incomplete)}")
    found = {name: floors.Floor.of([run[name] for run in runs]) for name in names}
    floors.PATH.write_text(floors.written(found))


def tell(text):
    print(text, file=sys.stderr, flush=True)


def stop(number, _frame):
    """Leaves all blocks in order, so that processes end and labs are taken down. Further signals
    must not interrupt that."""
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
