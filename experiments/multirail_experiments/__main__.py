"""Measures every plan.toml below experiments/, draws its figures, and writes RESULTS.md.

Results are in <paper>/<folder>/runs/<date>/: raw.jsonl and pictures. Measuring needs root, and a
machine that does nothing else.
"""

import argparse
import os
import pathlib
import signal
import sys
import time
import traceback

from multirail_experiments import report
from multirail_experiments.experiment import find
from multirail_experiments.messages import overview
from multirail_experiments.paths import HOME, PART_OUT, QUICK_OUT, ROOT

# The folder whose results are the figure of README.md.
OVERVIEW = "peers/messages"


def arguments():
    parser = argparse.ArgumentParser(
        prog="experiments/run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--multirail",
        type=pathlib.Path,
        default=ROOT / "target/release/multirail",
        help="the command to measure [default: target/release/multirail]",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="GLOB",
        help="measure only folders that match, such as mob/scenarios; can be repeated",
    )
    for what, example in (("network", "4x4"), ("line", "adaptive")):
        parser.add_argument(
            f"--{what}",
            action="append",
            metavar="GLOB",
            help=f"measure only {what}s that match, such as {example}; can be repeated; results go "
            f"to {PART_OUT.relative_to(ROOT)}",
        )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"fewer sizes and repeats; results go to {QUICK_OUT.relative_to(ROOT)}",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        help="where results go [default: the experiments' own folders]",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="measure nothing; draw and write pages from the newest results",
    )
    return parser.parse_args()


def main():
    args = arguments()
    if not args.report and os.geteuid() != 0:
        raise SystemExit(
            "experiments make network namespaces, which needs root: sudo make experiments"
        )
    is_part = args.network or args.line
    out = (args.out or (QUICK_OUT if args.quick else PART_OUT if is_part else HOME)).resolve()
    experiments = find(args.only, out, args.network, args.line)
    if not experiments:
        raise SystemExit(f"no experiment matches {' or '.join(args.only)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    failed = []
    for experiment in experiments:
        if (not args.report and not measured(experiment, args)) or attempt(
            experiment, "drawing", experiment.draw
        ) is None:
            failed.append(experiment.name)
        elif out == HOME and experiment.found:
            attempt(
                experiment, "writing README.md", lambda one=experiment: report.write_readme(one)
            )
            if experiment.name == OVERVIEW:
                attempt(
                    experiment,
                    "drawing the README's figure",
                    lambda one=experiment: overview.draw(one.found),
                )
    write_results(out, experiments, failed)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


def measured(experiment, args):
    """Measures one experiment; returns whether that succeeded."""
    started = time.monotonic()

    def act():
        experiment.measure(str(args.multirail.resolve()), args.quick)
        return True

    if not attempt(experiment, "measuring", act):
        return False
    print(f"{experiment.name}: {time.monotonic() - started:.0f} s", flush=True)
    return True


def attempt(experiment, what, act):
    """Calls `act` and returns its result, or None after printing why it failed.

    One failed experiment must not stop the others.
    """
    try:
        return act()
    except Exception as error:
        print(f"{experiment.name}: {what} failed: {error}", file=sys.stderr, flush=True)
        if not isinstance(error, RuntimeError):
            traceback.print_exc()
        return None


def stop(number, _frame):
    """Exits in order, so that context managers end processes and take labs down.

    Further signals are ignored, because they would interrupt that clean-up.
    """
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def write_results(out, experiments, failed):
    """Writes RESULTS.md from all results in `out`, including those of earlier runs."""
    by_name = {experiment.name: experiment for experiment in experiments}
    every = [by_name.get(experiment.name, experiment) for experiment in find(None, out)]
    for experiment in every:
        if experiment.found is None and experiment.name not in failed:
            attempt(experiment, "drawing", experiment.draw)
    report.write_results(
        out / "RESULTS.md", [experiment for experiment in every if experiment.found]
    )


if __name__ == "__main__":
    main()
