"""`multirail cp HOST:PATH`, which starts its server over ssh."""

import contextlib

from multirail_experiments.peers.sshd import HOST, missing_ssh, sshd

NAME = "multirail cp over ssh"
PORT = 7826


def available(_lab):
    return missing_ssh()


@contextlib.contextmanager
def serving(lab, source):
    with sshd(lab, PORT) as server:

        def command(load, target):
            folder = source.root / load.folder
            what = folder / load.names[0] if load.is_one else folder
            return [
                lab.multirail,
                "cp",
                *([] if load.is_one else ["-r"]),
                "--ssh",
                server.ssh,
                "--ssh-program",
                lab.multirail,
                f"{HOST}:{what}",
                f"{target}/",
            ]

        yield [(NAME, command)]
