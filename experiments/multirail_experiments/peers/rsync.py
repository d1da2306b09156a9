"""rsync, from its daemon; the target is empty, so whole files are copied."""

import contextlib

from multirail_experiments.peers.common import best_rail, missing

NAME = "rsync"
PORT = 7822


def available(_lab):
    return missing("rsync")


@contextlib.contextmanager
def serving(lab, source):
    address = lab.address("b", best_rail(lab))
    settings = lab.work / "rsyncd.conf"
    settings.write_text(
        "use chroot = no\nreverse lookup = no\nlog file = /dev/null\n"
        f"lock file = {lab.work}/rsyncd.lock\n"
        f"uid = root\ngid = root\n[source]\npath = {source.root}\nread only = yes\n"
    )

    def command(load, target):
        return [
            "rsync",
            "--recursive",
            "--times",
            "--perms",
            "--whole-file",
            f"rsync://{address}:{PORT}/source/{load.folder}/",
            f"{target}/",
        ]

    server = [
        "rsync",
        "--daemon",
        "--no-detach",
        "--config",
        settings,
        "--port",
        PORT,
    ]
    with lab.start("b", *server, ready=lab.listens("b", PORT)):
        yield [(NAME, command)]
