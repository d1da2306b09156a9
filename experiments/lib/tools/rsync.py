"""rsync, from its daemon. Nothing is there before, so whole files are copied."""

import contextlib

from tools.common import best_rail, missing

NAME = "rsync"
PORT = 7822


def available(_lab):
    return missing("rsync")


@contextlib.contextmanager
def serving(lab, source):
    address = lab.address("b", best_rail(lab))
    settings = lab.work / "rsyncd.conf"
    settings.write_text(f"use chroot = no\nreverse lookup = no\nlock file = {lab.work}/rsyncd.lock\nlog file = /dev/null\n"
                        f"uid = root\ngid = root\n[source]\npath = {source.root}\nread only = yes\n")

    def command(load, target):
        return ["rsync", "--recursive", "--times", "--perms", "--whole-file", f"rsync://{address}:{PORT}/source/{load.folder}/",
                f"{target}/"]

    server = ["rsync", "--daemon", "--no-detach", "--config", settings, "--address", address, "--port", PORT]
    with lab.start("b", *server, ready=lab.listens("b", PORT)):
        yield [(NAME, command)]
