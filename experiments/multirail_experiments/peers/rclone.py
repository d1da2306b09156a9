"""rclone over sftp, with its defaults: 4 files at once, and 4 streams for a large one."""

import contextlib

from multirail_experiments.peers.sshd import missing_ssh, sshd

NAME = "rclone, sftp"
PORT = 7825


def available(_lab):
    return missing_ssh("rclone")


@contextlib.contextmanager
def serving(lab, source):
    with sshd(lab, PORT) as server:

        def command(load, target):
            return [
                "rclone",
                "copy",
                "--config",
                "/dev/null",
                "--sftp-host",
                server.address,
                "--sftp-port",
                PORT,
                "--sftp-user",
                "root",
                "--sftp-key-file",
                server.key,
                "--sftp-known-hosts-file",
                server.known_hosts,
                f":sftp:{source.root / load.folder}",
                target,
            ]

        yield [(NAME, command)]
