"""`python3 -B scripts/regress MULTIRAIL`: see run.py."""

from run import main

main()
