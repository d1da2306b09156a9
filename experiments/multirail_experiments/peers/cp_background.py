"""`multirail cp --background`, from `multirail serve` without that option."""

from multirail_experiments.peers import cp

NAME = "multirail cp --background"
PORT = 7828


def available(_lab):
    return None


def serving(lab, source):
    return cp.serving_with(lab, source, NAME, PORT, [], ["--background"])
