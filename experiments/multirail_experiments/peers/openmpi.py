"""Open MPI over TCP on all rails: experiments/c/mpi_pingpong.c, a rank on each host.

mpirun starts processes on the other host through a small script instead of ssh. Both hosts are one
machine, so each rank gets its own host name, and only TCP (`btl tcp,self`) may carry messages.
"""

import contextlib
import shlex

from multirail_experiments.peers.common import client, messages, missing, program

NAME = "openmpi"


def available(_lab):
    return missing("mpirun", "mpicc", "orted", "unshare")


def renamed(host, rest):
    """A shell command that runs with a host name of its own."""
    return f"hostname experiment-{host} && exec {rest}"


def remote_shell(net, names):
    """Writes the script that mpirun calls as it would call ssh; `names` is hosts by address."""
    path = net.work / "mpi-remote-shell"
    cases = "\n".join(f"    {address}) name={name} ;;" for address, name in names.items())
    enter = shlex.join(net.on("HOST", "unshare", "--uts", "sh", "-c")).replace("HOST", '"$name"')
    path.write_text(
        f'#!/bin/sh\ncase "$1" in\n{cases}\nesac\nshift\nexec {enter} "{renamed("$name", "$*")}"\n'
    )
    path.chmod(0o700)
    return path


@contextlib.contextmanager
def session(lab):
    ports = ",".join(lab.port(rail) for rail in range(lab.rails))
    settings = {
        "plm_rsh_agent": remote_shell(lab, {lab.address("b", 0): "b"}),
        "orte_tmpdir_base": lab.work,
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": ports,
        "oob_tcp_if_include": lab.port(0),
        # Open MPI spins while it waits. With few processors it is faster if it yields meanwhile.
        "mpi_yield_when_idle": 1,
    }
    words = [
        "mpirun",
        "--allow-run-as-root",
        "-np",
        "2",
        "--map-by",
        "node",
        "--bind-to",
        "none",
        "--host",
        f"{lab.address('a', 0)}:1,{lab.address('b', 0)}:1",
    ]
    for name, value in settings.items():
        words += ["--mca", name, str(value)]
    words.append(str(program("mpi_pingpong", "mpicc")))
    with client(
        lab, NAME, "unshare", "--uts", "sh", "-c", renamed("a", shlex.join(words))
    ) as opened:
        yield opened


messages = messages(NAME, session)
