"""`rsync -a` over ssh; the target is empty, so whole files are copied."""

import contextlib

from multirail_experiments.peers.sshd import HOST, missing_ssh, sshd

NAME = "rsync over ssh"
PORT = 7824


def available(_lab):
    return missing_ssh("rsync")


@contextlib.contextmanager
def serving(lab, source):
    with sshd(lab, PORT) as server:

        def command(load, target):
            folder = source.root / load.folder
            return ["rsync", "-a", "-e", server.ssh, f"{HOST}:{folder}/", f"{target}/"]

        yield [(NAME, command)]
