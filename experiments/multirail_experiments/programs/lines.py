"""How programs are started: as they are, by `mptcpize run`, or by `multirail run`."""

import contextlib
import copy
import subprocess

from multirail_experiments.peers import mptcp
from multirail_experiments.peers.common import best_rail, missing

QUIET = subprocess.DEVNULL
PLAIN, MPTCP = "plain", "mptcpize run"
RUN, REQUIRE = "multirail run", "multirail run --require"


def prefixed(lab, **words):
    """The lab with the words before each command on a host; `bare` is the lab without."""
    other = copy.copy(lab)
    other.bare, other.words = lab, words
    other.on = lambda host, *command: lab.on(host, *words.get(host, ()), *command)
    return other


class Plain:
    """TCP on the fastest rail."""

    def lacks(self, lab):
        return None

    @contextlib.contextmanager
    def on(self, lab):
        """The lab as programs of this line see it."""
        yield prefixed(lab)


class Mptcp(Plain):
    """Multipath TCP, which needs it on both hosts."""

    def lacks(self, lab):
        return missing("mptcpize") or mptcp.available(lab)

    @contextlib.contextmanager
    def on(self, lab):
        words = ["mptcpize", "run"]
        with mptcp.paths(lab, best_rail(lab)):
            yield prefixed(lab, a=words, b=words)


class Run(Plain):
    """`multirail run`, with a server on the other host. Each command makes a session of its own.

    Programs with a part on each host have a server on both.
    """

    def __init__(self, *options):
        self.options = options

    @contextlib.contextmanager
    def on(self, lab):
        server = [lab.multirail, "serve", "--root", lab.work, "--token-file", lab.token_file]
        words = [lab.multirail, "run", *self.options, "--token-file", lab.token_file, "--"]
        with contextlib.ExitStack() as servers:
            for host in ("a", "b"):
                command = lab.start(host, *server, "--allow-forward", ready="", stderr=QUIET)
                process = servers.enter_context(command)
            other = prefixed(lab, a=words)
            # That of host b.
            other.server = process
            yield other


LINES = {PLAIN: Plain(), MPTCP: Mptcp(), RUN: Run(), REQUIRE: Run("--require")}
