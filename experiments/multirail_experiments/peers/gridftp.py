"""GridFTP: globus-url-copy from globus-gridftp-server, without a login.

One file goes over 4 connections (-p 4). Many files go over 16 sessions (-cc 16) with requests sent
ahead (-pp) and data connections kept (-fast); 4 sessions were a third as fast on a WAN, and no
faster elsewhere. The server looks up the names of addresses, so both hosts get them in a table of
their own.
"""

import contextlib

from multirail_experiments.peers.common import best_rail, missing
from multirail_experiments.peers.common import command as find

NAME = "gridftp"
PORT = 7821
CONNECTIONS = 4
SESSIONS = 16


def available(_lab):
    return missing("globus-gridftp-server", "globus-url-copy", "unshare")


def named(lab, host, rail):
    table = lab.work / "hosts"
    table.write_text(
        "127.0.0.1 localhost\n"
        + "".join(
            f"{lab.address(other, number)} {other}{number}\n"
            for other in ("a", "b")
            for number in range(lab.rails)
        )
    )
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount --bind {table} /etc/hosts && exec "$@"',
        "sh",
        "env",
        f"GLOBUS_HOSTNAME={lab.address(host, rail)}",
    ]


@contextlib.contextmanager
def serving(lab, source):
    rail = best_rail(lab)
    address = lab.address("b", rail)
    server = [
        *named(lab, "b", rail),
        find("globus-gridftp-server"),
        "-allow-anonymous",
        "-anonymous-user",
        "nobody",
        "-allow-disabled-login",
        "-control-interface",
        address,
        "-data-interface",
        address,
        "-port",
        PORT,
    ]

    def command(load, target):
        where = f"ftp://{address}:{PORT}{source.root / load.folder}/"
        words = [*named(lab, "a", rail), "globus-url-copy"]
        if load.is_one:
            return [
                *words,
                "-p",
                CONNECTIONS,
                where + load.names[0],
                f"file://{target}/{load.names[0]}",
            ]
        return [*words, "-cc", SESSIONS, "-pp", "-fast", "-r", where, f"file://{target}/"]

    with lab.start("b", *server, ready=lab.listens("b", PORT)):
        yield [("GridFTP", command)]
