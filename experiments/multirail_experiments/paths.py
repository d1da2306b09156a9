"""Folders of this repository that several modules need."""

import pathlib

# experiments/, with a folder for each paper.
HOME = pathlib.Path(__file__).resolve().parents[1]
ROOT = HOME.parent
TARGET = ROOT / "target/experiments"
QUICK_OUT = ROOT / "target/experiments-quick"
# Results of a part of the networks or lines: pages show whole runs only.
PART_OUT = ROOT / "target/experiments-part"
# `scripts/setup edges` installs the libraries that edges are compared with here. They have
# dependencies of their own, so only the processes that use them see this folder.
EDGES_PACKAGES = TARGET / "edges"
PYTHON = "/usr/bin/python3"
# `scripts/setup python` installs PyTorch, Ray and the package for Python here.
PYTHON_ENVIRONMENT = ROOT / "target/wheel/experiments"
