"""One plain TCP connection on the best rail: experiments/c/pingpong.c."""

import contextlib

from multirail_experiments.peers.common import best_rail, client, messages, missing, program

NAME = "tcp"
PORT = 7810


def available(_lab):
    return missing("cc")


@contextlib.contextmanager
def session(lab):
    rail, pingpong = best_rail(lab), program("pingpong")
    with (
        lab.start("b", pingpong, "server", lab.address("b", rail), PORT, ready="ready"),
        client(
            lab,
            NAME,
            pingpong,
            "client",
            lab.address("b", rail),
            PORT,
            "--bind",
            lab.address("a", rail),
        ) as opened,
    ):
        yield opened


messages = messages(NAME, session)
