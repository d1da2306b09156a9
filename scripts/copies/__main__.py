"""Measures copies of many files, and copies that are killed again and again. Needs root and rsync.

    scripts/copies target/release/multirail            # both, some ten minutes
    scripts/copies target/release/multirail kills --seed 7
    scripts/copies target/release/multirail files --files 100000
"""

import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

import kills
import many

WHAT = {"kills": kills.measure, "files": many.measure}


def main():
    parser = argparse.ArgumentParser(prog="scripts/copies", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("multirail", type=pathlib.Path, help="the command to measure")
    parser.add_argument("what", nargs="?", choices=WHAT, help="default: both")
    parser.add_argument("--seed", type=int, help="of the moments of the kills; default: a new one")
    parser.add_argument("--files", type=int, default=1_000_000, help="how many empty files")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("this makes network namespaces, which needs root")
    args.multirail = args.multirail.resolve()
    missed = [problem for name in ([args.what] if args.what else WHAT) for problem in WHAT[name](args)]
    if missed:
        raise SystemExit("\n".join(f"scripts/copies: {problem}" for problem in missed))


main()
