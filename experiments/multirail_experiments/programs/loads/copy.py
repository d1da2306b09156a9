"""rsync and git from host b to an empty folder of host a: `tool`, and `files` as "64x1m".

The rate is the bytes of the files, over the time of the user's command. Each copy is compared with
its source afterwards.
"""

import contextlib
import os
import shutil
import subprocess
import time

from multirail_experiments.peers import rsync
from multirail_experiments.peers.common import best_rail, missing
from multirail_experiments.peers.files import Source

GIT_PORT = 7824
LIMIT_S = 120


def unit(_load):
    return "Mbit/s"


def lacks():
    return missing("rsync", "git")


@contextlib.contextmanager
def serving(lab, load):
    with Source([load["files"]]) as source, SERVERS[load["tool"]](lab, source) as command:
        [files] = source.loads

        def once():
            with source.target() as target:
                began = time.monotonic()
                lab.run("a", *command(files, target), stderr=subprocess.PIPE, timeout=LIMIT_S)
                taken = time.monotonic() - began
                shutil.rmtree(target / "clone" / ".git", ignore_errors=True)
                if not files.is_in(target, source.digests[files.text]):
                    raise RuntimeError(f"{load['tool']}: the copy differs from its source")
            return 8e-6 * files.bytes / taken

        yield once


@contextlib.contextmanager
def rsync_daemon(lab, source):
    with rsync.serving(lab, source) as [(_, command)]:
        yield lambda files, target: [*command(files, target), "--archive"]


@contextlib.contextmanager
def git_daemon(lab, source):
    """Each load is a repository with one commit, packed as a server has it."""
    for files in source.loads:
        folder = source.root / files.folder
        for words in (
            ["init", "--quiet"],
            ["add", "."],
            [
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "commit",
                "--quiet",
                "--message",
                "files",
            ],
            ["repack", "-a", "-d", "--quiet"],
        ):
            settings = ["-c", "core.compression=0", "-c", "gc.auto=0"]
            subprocess.run(["git", "-C", folder, *settings, *words], check=True, env=plain_git())
    address = lab.address("b", best_rail(lab))
    server = ["git", "daemon", "--export-all", f"--base-path={source.root}", "--reuseaddr"]
    server += [f"--port={GIT_PORT}", source.root]
    with lab.start("b", *server, ready=lab.listens("b", GIT_PORT), stderr=subprocess.DEVNULL):
        yield lambda files, target: [
            *["git", "clone", "--quiet"],
            *[f"git://{address}:{GIT_PORT}/{files.folder}", target / "clone"],
        ]


def plain_git():
    """The environment without the user's settings of git."""
    return {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


SERVERS = {"rsync": rsync_daemon, "git": git_daemon}
