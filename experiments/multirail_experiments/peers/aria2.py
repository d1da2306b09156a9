"""aria2 from nginx, with 4 connections to the best rail's address, or to each rail's address."""

import contextlib

from multirail_experiments.peers import nginx
from multirail_experiments.peers.common import best_rail, missing

NAME = "aria2"
PORT = nginx.PORT
CONNECTIONS = 4
FILES_AT_ONCE = 16


def available(_lab):
    return nginx.missing() or missing("aria2c")


def command_of(lab, rails):
    def command(load, target):
        def addresses(name):
            return [
                f"http://{lab.address('b', rail)}:{PORT}/{load.folder}/{name}" for rail in rails
            ]

        words = [
            "aria2c",
            "--no-conf",
            "--quiet",
            "--file-allocation=none",
            "--auto-file-renaming=false",
            f"--dir={target}",
            f"--max-connection-per-server={CONNECTIONS}",
        ]
        if load.is_one:
            return [
                *words,
                f"--split={CONNECTIONS * len(rails)}",
                "--min-split-size=1M",
                *addresses(load.names[0]),
            ]
        # A line has all addresses of a file, and aria2 may use any of them.
        listed = lab.work / f"aria2-{len(rails)}"
        listed.write_text("".join("\t".join(addresses(name)) + "\n" for name in load.names))
        return [*words, f"--max-concurrent-downloads={FILES_AT_ONCE}", f"--input-file={listed}"]

    return command


@contextlib.contextmanager
def serving(lab, source):
    with nginx.serving(lab, source, PORT):
        best = [best_rail(lab)]
        yield [
            (f"aria2, {CONNECTIONS} connections", command_of(lab, best)),
            ("aria2, told all addresses", command_of(lab, range(lab.rails))),
        ]
