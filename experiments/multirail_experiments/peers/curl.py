"""curl from nginx: one connection for one file, 50 files at once for many."""

import contextlib

from multirail_experiments.peers import nginx
from multirail_experiments.peers.common import best_rail, missing

NAME = "curl"
PORT = nginx.PORT + 1
FILES_AT_ONCE = 50


def available(_lab):
    return nginx.missing() or missing("curl")


@contextlib.contextmanager
def serving(lab, source):
    address = lab.address("b", best_rail(lab))

    def command(load, target):
        where = f"http://{address}:{PORT}/{load.folder}"
        words = ["curl", "--disable", "--silent", "--show-error", "--fail"]
        if load.is_one:
            return [*words, "--output", f"{target}/{load.names[0]}", f"{where}/{load.names[0]}"]
        listed = lab.work / "curl-files"
        listed.write_text(
            "".join(f'url = "{where}/{name}"\noutput = "{target}/{name}"\n' for name in load.names)
        )
        return [*words, "--parallel", "--parallel-max", FILES_AT_ONCE, "--config", listed]

    with nginx.serving(lab, source, PORT):
        yield [(NAME, command)]
