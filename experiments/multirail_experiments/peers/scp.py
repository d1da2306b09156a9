"""scp, with its default cipher and with AES-GCM."""

import contextlib

from multirail_experiments.peers.sshd import HOST, missing_ssh, sshd

NAME = "scp"
PORT = 7823
CIPHERS = {NAME: [], f"{NAME}, AES-GCM": ["-c", "aes128-gcm@openssh.com"]}


def available(_lab):
    return missing_ssh("scp")


@contextlib.contextmanager
def serving(lab, source):
    with sshd(lab, PORT) as server:

        def line(options):
            def command(load, target):
                folder = source.root / load.folder
                what = folder / load.names[0] if load.is_one else folder
                return [
                    "scp",
                    "-q",
                    *options,
                    "-F",
                    server.configuration,
                    *([] if load.is_one else ["-r"]),
                    f"{HOST}:{what}",
                    f"{target}/",
                ]

            return command

        yield [(name, line(options)) for name, options in CIPHERS.items()]
