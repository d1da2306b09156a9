"""`multirail cp --plaintext`, from `multirail serve --plaintext`."""

from multirail_experiments.peers import cp

NAME = "multirail cp --plaintext"
PORT = 7827


def available(_lab):
    return None


def serving(lab, source):
    return cp.serving_with(lab, source, NAME, PORT, ["--plaintext"])
